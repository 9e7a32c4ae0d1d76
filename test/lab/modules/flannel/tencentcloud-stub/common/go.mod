// What flannel's Tencent Cloud back-end needs to compile. The lab never uses that back-end.
module github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common

go 1.26.0

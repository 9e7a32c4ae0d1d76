// SPDX-License-Identifier: Apache-2.0

// Package errors has the one error type that flannel's Tencent Cloud back-end distinguishes.
package errors

// TencentCloudSDKError is never returned: nothing here talks to a cloud.
type TencentCloudSDKError struct{}

func (*TencentCloudSDKError) Error() string { return "the Tencent Cloud SDK is left out of this build" }

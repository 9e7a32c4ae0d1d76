module github.com/go-acme/lego/v4

go 1.26.0

// SPDX-License-Identifier: Apache-2.0

// Program ocadm installs Kubernetes and a OneCloud cloud on it, and is the operator of that cloud.
package main

import (
	"context"
	"os"
	"strings"

	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/phases/host"
)

func main() {
	os.Exit(run())
}

func run() int {
	argv, err := cmd.HideSecrets(os.Args)
	if err != nil {
		return cmd.Fail(os.Stderr, err)
	}
	if err := os.Setenv("PATH", strings.Trim(os.Getenv("PATH")+":"+host.LoginPath, ":")); err != nil { // preflight looks there for what ocadm runs
		return cmd.Fail(os.Stderr, err)
	}
	ctx, release := cmd.Signals(context.Background(), os.Exit)
	defer release()
	return cmd.Execute(ctx, cmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, argv[1:])
}

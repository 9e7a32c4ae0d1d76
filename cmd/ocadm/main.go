// SPDX-License-Identifier: Apache-2.0

// Program ocadm installs Kubernetes and a OneCloud cloud on it, and is the operator of that cloud.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/internal/finding"
)

func main() {
	os.Exit(run())
}

// run ends at once on the second interrupt; the first one lets what runs come to an end.
func run() int {
	if err := cmd.HideSecrets(os.Args); err != nil {
		return cmd.Fail(os.Stderr, err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		cancel(cmd.Interrupted(<-signals))
		<-signals
		os.Exit(finding.ExitInterrupted)
	}()
	return cmd.Execute(ctx, cmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:])
}

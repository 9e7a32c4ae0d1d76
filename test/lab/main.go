// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command lab makes test machines on this host, and the binaries, images and bundle for a cloud on them. It is for development and tests only and not part of ocadm.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 && errors.Is(err, errOnMachine) {
		os.Exit(exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

// logf reports progress on standard error.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, "lab: "+format+"\n", args...) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "lab",
		Short:         "Machines, binaries, images and the bundle for trying and testing ocadm on one host",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddGroup(&cobra.Group{ID: "machines", Title: "Machines:"}, &cobra.Group{ID: "material", Title: "What is installed on them:"})
	for _, c := range machineCommands() {
		c.GroupID = "machines"
		cmd.AddCommand(c)
	}
	for _, c := range []*cobra.Command{prepareCommand(), bundleCommand()} {
		c.GroupID = "material"
		cmd.AddCommand(c)
	}
	return cmd
}

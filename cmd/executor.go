// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"log/slog"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/executor"
)

// newExecutor is the server that runs commands on a node for the agents of the cloud.
func newExecutor(a *app) *cobra.Command {
	o := executor.Options{}
	c := &cobra.Command{
		Use:   "executor",
		Short: "Run commands on this node for the agents of the cloud",
		Long: "Serves the executor's protocol on a unix socket. Host agents, glance and other services run in containers; through the socket they run\n" +
			"programs on the node itself: qemu, lvm, mount. There is no authentication, so only root may open the socket.\n\n" +
			"On a node it runs as the systemd unit " + executor.UnitName + ", which ocadm join installs with the host agent.\n\n" +
			"Stopping the executor ends no program that it has started. Within ten seconds running commands may still end and report; then they go on\n" +
			"without it, and their clients get an error. A command that no client attends to any more is ended after --abandon-after: that kills the\n" +
			"program itself, never the daemons that it has started.",
		Example: "  # As the node's unit does\n  ocadm executor\n\n" +
			"  # Beside it, on a socket of its own\n  ocadm executor --socket-path /run/executor-test/exec.sock",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if a.verbosity > 0 {
				level = slog.LevelDebug
			}
			o.Log = slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: level}))
			return executor.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Socket, "socket-path", executor.DefaultSocket, "unix socket to serve; its directory is made, a stale socket is replaced")
	f.IntVar(&o.MaxCommands, "max-commands", executor.DefaultMaxCommands, "how many commands may be registered at one time; more are refused")
	f.DurationVar(&o.AbandonAfter, "abandon-after", executor.DefaultAbandonAfter, "when to end a command whose client is gone or never asks for its result")
	return c
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"log/slog"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/executor"
)

// newExecutor serves commands of the cloud's agents on a node.
func newExecutor(a *app) *cobra.Command {
	o := executor.Options{}
	c := &cobra.Command{
		Use:   "executor",
		Short: "Run commands on this node for the agents of the cloud",
		Long: "Serves the executor protocol on a unix socket. Host agents, glance and other services run in containers. Through the socket they run\n" +
			"programs such as qemu, lvm and mount on the node itself. There is no authentication, so only root may open the socket.\n\n" +
			"On a node the executor runs as the systemd unit " + executor.UnitName + ", which join installs with the host agent.\n\n" +
			"Stopping the executor does not stop the programs that it started. For ten seconds it still reports the results of running commands.\n" +
			"After that, the commands continue without it and their clients get an error. A command whose output a client requested is then ended by\n" +
			"its next write (SIGPIPE); daemons that closed their output, such as virtual machines, are not. The executor kills a command whose client\n" +
			"is gone after --abandon-after, but not the daemons that the command started.",
		Example: "  # as the unit of the node does\n  ocadm executor\n\n" +
			"  # on another socket\n  ocadm executor --socket-path /run/executor-test/exec.sock",
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
	f.StringVar(&o.Socket, "socket-path", executor.DefaultSocket, "unix socket to serve; its directory is created, a stale socket is replaced")
	f.IntVar(&o.MaxCommands, "max-commands", executor.DefaultMaxCommands, "maximum number of registered commands; more are refused")
	f.DurationVar(&o.AbandonAfter, "abandon-after", executor.DefaultAbandonAfter,
		"when to kill a command whose client is gone or never fetches the result")
	return c
}

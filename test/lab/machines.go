// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"yunion.io/x/ocadm/test/lab/debian"
	"yunion.io/x/ocadm/test/lab/machine"
)

// errOnMachine marks an error whose exit status is that of the command on the machine.
var errOnMachine = errors.New("on the machine")

func machineCommands() []*cobra.Command {
	return []*cobra.Command{
		upCommand(), downCommand(),
		ofLab("status", "Print the machines' names and addresses", cobra.NoArgs, func(_ *cobra.Command, name string, _ []string) error {
			lab, err := machine.Open(name, logf)
			if err == nil {
				printNodes(lab)
			}
			return err
		}),
		onNode("shell", "Open a shell on a machine", cobra.NoArgs, func([]string) []string { return []string{"bash", "--login"} }),
		onNode("exec -- COMMAND [ARGUMENT...]", "Run a command on a machine; its exit status is ours", cobra.MinimumNArgs(1),
			func(args []string) []string { return args }),
		withNode("kill", "Stop a machine as a power failure does; its disk stays", cobra.NoArgs,
			func(cmd *cobra.Command, n *machine.Node, _ []string) error { return n.Kill(cmd.Context()) }),
		withNode("start", "Boot a killed machine with its disk", cobra.NoArgs,
			func(cmd *cobra.Command, n *machine.Node, _ []string) error { return n.Start(cmd.Context()) }),
		ofLab("cp FROM TO", "Copy a file to or from a machine, named as in node1:/path", cobra.ExactArgs(2), copyFile),
		deployCommand(),
	}
}

// ofLab returns a command about a named lab.
func ofLab(use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, name string, args []string) error) *cobra.Command {
	var name string
	cmd := &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error { return run(cmd, name, args) }}
	cmd.Flags().StringVar(&name, "name", machine.DefaultName, "the lab's name, when there is more than one")
	return cmd
}

func upCommand() *cobra.Command {
	o := machine.Options{Logf: logf}
	cmd := ofLab("up", "Boot fresh machines, or find them running", cobra.NoArgs, func(cmd *cobra.Command, name string, _ []string) error {
		o.Name = name
		for _, p := range []*string{&o.Ocadm, &o.Bundle} {
			if err := absolute(p); err != nil {
				return err
			}
		}
		lab, err := machine.Up(cmd.Context(), o)
		if err == nil {
			printNodes(lab)
		}
		return err
	})
	cmd.Example = "  # Two machines with the checkout's ocadm and bundle\n  lab up --nodes 2 --ocadm bin/ocadm --bundle bin/ocadm.bundle"
	cmd.Flags().IntVar(&o.Nodes, "nodes", 2, "how many machines")
	cmd.Flags().StringVar(&o.Ocadm, "ocadm", "", "the ocadm binary, to appear as /usr/local/bin/ocadm")
	cmd.Flags().StringVar(&o.Distro, "distro", debian.Release, "Debian release of the machines: "+strings.Join(debian.Releases(), ", "))
	cmd.Flags().StringVar(&o.Bundle, "bundle", "", "the bundle, to appear as /bundle/ocadm.bundle")
	return cmd
}

// absolute makes a path absolute. The file may be created later; its directory must exist.
func absolute(path *string) (err error) {
	if *path == "" {
		return nil
	}
	if *path, err = filepath.Abs(*path); err != nil {
		return fmt.Errorf("finding a file of the lab: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(*path), 0o755); err != nil {
		return fmt.Errorf("creating the directory of %s: %w", *path, err)
	}
	return nil
}

func printNodes(lab *machine.Lab) {
	for _, n := range lab.Nodes() {
		fmt.Printf("%s\t%s\n", n.Name, n.Address)
	}
}

func downCommand() *cobra.Command {
	var all bool
	cmd := ofLab("down", "Remove machines and everything that belongs to them", cobra.NoArgs, func(cmd *cobra.Command, name string, _ []string) error {
		if all {
			return machine.DownAll(cmd.Context(), logf)
		}
		return machine.Down(cmd.Context(), name, logf)
	})
	cmd.Flags().BoolVar(&all, "all", false, "remove every lab, and what lost ones left")
	return cmd
}

func node(name string, index int) (*machine.Node, error) {
	if os.Geteuid() != 0 {
		return nil, machine.ErrNotRoot
	}
	lab, err := machine.Open(name, logf)
	if err != nil {
		return nil, err
	}
	if nodes := lab.Nodes(); index < 1 || index > len(nodes) {
		return nil, fmt.Errorf("finding machine %d of the lab %q: it has %d", index, name, len(nodes))
	}
	return lab.Node(index), nil
}

// withNode returns a command about one machine.
func withNode(use, short string, args cobra.PositionalArgs, do func(*cobra.Command, *machine.Node, []string) error) *cobra.Command {
	var index int
	cmd := ofLab(use, short, args, func(cmd *cobra.Command, name string, args []string) error {
		n, err := node(name, index)
		if err != nil {
			return err
		}
		return do(cmd, n, args)
	})
	cmd.Flags().IntVar(&index, "node", 1, "which machine")
	return cmd
}

// onNode returns a command that runs a program on one machine.
func onNode(use, short string, args cobra.PositionalArgs, argv func([]string) []string) *cobra.Command {
	return withNode(use, short, args, func(cmd *cobra.Command, n *machine.Node, args []string) error {
		s := machine.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
		s.Terminal = term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
		if err := n.Run(cmd.Context(), s, argv(args)...); err != nil {
			return fmt.Errorf("%w: %w", errOnMachine, err)
		}
		return nil
	})
}

func copyFile(cmd *cobra.Command, name string, args []string) error {
	from, fromPath := splitTarget(args[0])
	to, toPath := splitTarget(args[1])
	if (from == 0) == (to == 0) {
		return errors.New("copying: exactly one of the two must be on a machine, as in node1:/path")
	}
	n, err := node(name, from+to)
	if err != nil {
		return err
	}
	if to != 0 {
		return n.CopyIn(cmd.Context(), fromPath, toPath)
	}
	return n.CopyOut(cmd.Context(), fromPath, toPath)
}

// splitTarget splits "node1:/path". For a path of this host, the machine is 0.
func splitTarget(s string) (int, string) {
	host, path, _ := strings.Cut(s, ":")
	number, _ := strings.CutPrefix(host, "node")
	if i, err := strconv.Atoi(number); err == nil && path != "" {
		return i, path
	}
	return 0, s
}

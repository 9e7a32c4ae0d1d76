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

	"yunion.io/x/ocadm/test/lab/machine"
)

// errOnMachine marks an error whose exit status is that of the command on the machine.
var errOnMachine = errors.New("on the machine")

func machineCommands() []*cobra.Command {
	return []*cobra.Command{upCommand(), downCommand(), statusCommand(), shellCommand(), execCommand(), copyCommand(), deployCommand()}
}

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", machine.DefaultName, "the lab's name, when there is more than one")
}

func upCommand() *cobra.Command {
	o := machine.Options{Logf: logf}
	cmd := &cobra.Command{
		Use: "up", Args: cobra.NoArgs,
		Short:   "Boot fresh machines, or find them running",
		Example: "  # Two machines with the checkout's ocadm and bundle\n  lab up --nodes 2 --ocadm bin/ocadm --bundle bin/ocadm.bundle",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, p := range []*string{&o.Ocadm, &o.Bundle} {
				if err := absolute(p); err != nil {
					return err
				}
			}
			lab, err := machine.Up(cmd.Context(), o)
			if err != nil {
				return err
			}
			printNodes(lab)
			return nil
		},
	}
	nameFlag(cmd, &o.Name)
	cmd.Flags().IntVar(&o.Nodes, "nodes", 2, "how many machines")
	cmd.Flags().StringVar(&o.Ocadm, "ocadm", "", "the ocadm binary, to appear as /usr/local/bin/ocadm")
	cmd.Flags().StringVar(&o.Bundle, "bundle", "", "the bundle, to appear as /bundle/ocadm.bundle")
	return cmd
}

// absolute makes a path absolute. The file may come later, its directory must be there.
func absolute(path *string) error {
	if *path == "" {
		return nil
	}
	abs, err := filepath.Abs(*path)
	if err != nil {
		return fmt.Errorf("finding %s: %w", *path, err)
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o755); err != nil {
		return fmt.Errorf("creating the directory of %s: %w", *path, err)
	}
	*path = abs
	return nil
}

func printNodes(lab *machine.Lab) {
	for _, n := range lab.Nodes() {
		fmt.Printf("%s\t%s\n", n.Name, n.Address)
	}
}

func statusCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "status", Args: cobra.NoArgs,
		Short: "Print the machines' names and addresses",
		RunE: func(*cobra.Command, []string) error {
			lab, err := machine.Open(name, logf)
			if err != nil {
				return err
			}
			printNodes(lab)
			return nil
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

func downCommand() *cobra.Command {
	var name string
	var all, verify bool
	cmd := &cobra.Command{
		Use: "down", Args: cobra.NoArgs,
		Short: "Remove machines and everything that belongs to them",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			// Found before it goes, because nobody can say later what belonged to it.
			lab, openErr := machine.Open(name, logf)
			down := func() error { return machine.Down(ctx, name, logf) }
			if all {
				down = func() error { return machine.DownAll(ctx, logf) }
			}
			if err := down(); err != nil || !verify {
				return err
			}
			switch {
			case all:
				return verifyGone(machine.Residue)
			case openErr == nil:
				return verifyGone(lab.Residue)
			default: // there was none
				return nil
			}
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().BoolVar(&all, "all", false, "remove every lab, and what lost ones left")
	cmd.Flags().BoolVar(&verify, "verify", false, "look for what is left, print it, and fail if there is something")
	return cmd
}

func verifyGone(residue func() ([]string, error)) error {
	left, err := residue()
	if err != nil {
		return err
	}
	for _, line := range left {
		fmt.Println(line)
	}
	if len(left) > 0 {
		return fmt.Errorf("%d things are left of the lab", len(left))
	}
	logf("no mount, network namespace, link, control group, process or directory is left")
	return nil
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

func shellCommand() *cobra.Command {
	var name string
	var index int
	cmd := &cobra.Command{
		Use: "shell", Args: cobra.NoArgs,
		Short: "Open a shell on a machine",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return onMachine(cmd, name, index, []string{"bash", "--login"})
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().IntVar(&index, "node", 1, "which machine")
	return cmd
}

func execCommand() *cobra.Command {
	var name string
	var index int
	cmd := &cobra.Command{
		Use: "exec -- COMMAND [ARGUMENT...]", Args: cobra.MinimumNArgs(1),
		Short: "Run a command on a machine; its exit status is ours",
		RunE: func(cmd *cobra.Command, args []string) error {
			return onMachine(cmd, name, index, args)
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().IntVar(&index, "node", 1, "which machine")
	return cmd
}

func onMachine(cmd *cobra.Command, name string, index int, argv []string) error {
	n, err := node(name, index)
	if err != nil {
		return err
	}
	s := machine.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	s.Terminal = term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
	if err := n.Run(cmd.Context(), s, argv...); err != nil {
		return fmt.Errorf("%w: %w", errOnMachine, err)
	}
	return nil
}

func copyCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "cp FROM TO", Args: cobra.ExactArgs(2),
		Short:   "Copy a file to or from a machine",
		Example: "  lab cp cloud.yaml node1:/root/cloud.yaml\n  lab cp node1:/etc/kubernetes/admin.conf admin.conf",
		RunE: func(cmd *cobra.Command, args []string) error {
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
		},
	}
	nameFlag(cmd, &name)
	return cmd
}

// splitTarget takes "node1:/path" apart. A path of this host has machine 0.
func splitTarget(s string) (int, string) {
	host, path, ok := strings.Cut(s, ":")
	number, found := strings.CutPrefix(host, "node")
	if !ok || !found {
		return 0, s
	}
	i, err := strconv.Atoi(number)
	if err != nil {
		return 0, s
	}
	return i, path
}

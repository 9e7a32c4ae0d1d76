// SPDX-License-Identifier: Apache-2.0

// Package program implements the stand-in from its command line to its end. The command fakecloud describes it.
package program

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// name returns the program to play and its arguments: the value of a leading --service NAME, or else the base name of argv[0]. A shell that is called
// with climc's entry point plays a climc that keeps running, so that an image needs no shell.
func name(argv []string) (string, []string) {
	self, args := filepath.Base(argv[0]), argv[1:]
	if len(args) > 0 {
		if value, found := strings.CutPrefix(args[0], "--service="); found {
			return value, args[1:]
		}
		if args[0] == "--service" && len(args) > 1 {
			return args[1], args[2:]
		}
	}
	switch {
	case self == "manager":
		return "onecloud-service-operator", args
	case self == "start.sh" && len(args) > 0:
		return "openvswitch-" + args[0], args[1:]
	}
	shell := self == "bash" || self == "sh"
	if shell && slices.ContainsFunc(args, func(a string) bool { return filepath.Base(a) == "climc-entrypoint.sh" }) {
		return "climc", []string{"sleep"}
	}
	return self, args
}

// Run plays the program that argv names on a machine until ctx ends.
func Run(ctx context.Context, m Machine, argv []string) error {
	self, args := name(argv)
	switch self {
	case "fakecloud", "bash", "sh":
		return fmt.Errorf("call me after a service, or with --service NAME; I know %s", strings.Join(servicespec.Names(), ", "))
	}
	p := servicespec.Lookup(self)
	if err := m.starts(args); err != nil {
		return err
	}
	ctx, ended := m.breakable(ctx)
	if p.Role == servicespec.CLI {
		return ended(climc(ctx, m, args))
	}
	return ended(start(ctx, m, p, args))
}

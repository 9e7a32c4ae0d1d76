// SPDX-License-Identifier: Apache-2.0

// Package program implements the stand-in from its command line to its end. The command fakecloud describes it.
package program

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// name returns the program to play, after the base name of argv[0], and its arguments.
func name(argv []string) (string, []string) {
	self, args := filepath.Base(argv[0]), argv[1:]
	switch {
	case self == "manager":
		return "onecloud-service-operator", args
	case self == "start.sh" && len(args) > 0:
		return "openvswitch-" + args[0], args[1:]
	}
	return self, args
}

// Run plays the program that argv names on a machine until ctx ends.
func Run(ctx context.Context, m Machine, argv []string) error {
	self, args := name(argv)
	if self == "fakecloud" {
		return fmt.Errorf("call me by the name of a service; I know %s", strings.Join(servicespec.Names(), ", "))
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

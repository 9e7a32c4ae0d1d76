// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
)

// ReadOnly returns a runner that only runs programs known to change nothing; all others fail with ErrDryRun.
func ReadOnly(r exec.Runner) exec.Runner { return readOnly{r} }

type readOnly struct{ exec.Runner }

func (r readOnly) Run(ctx context.Context, c exec.Command) (exec.Result, error) {
	if !harmless(c) {
		return exec.Result{}, fmt.Errorf("running %s: %w", filepath.Base(c.Path), ErrDryRun)
	}
	return r.Runner.Run(ctx, c)
}

func harmless(c exec.Command) bool {
	args := strings.Join(c.Args, " ")
	verb := ""
	if i := slices.IndexFunc(c.Args, func(a string) bool { return !strings.HasPrefix(a, "-") }); i >= 0 {
		verb = c.Args[i]
	}
	if args == "--version" || args == "version" {
		return true
	}
	switch filepath.Base(c.Path) {
	case "kubectl":
		return args == "version --client"
	case "systemctl":
		return slices.Contains([]string{"show", "cat", "status", "is-active", "is-enabled", "is-failed", "is-system-running", "list-units",
			"list-unit-files"}, verb)
	case "journalctl":
		return !strings.Contains(args, "vacuum") && !strings.Contains(args, "rotate") && !strings.Contains(args, "flush")
	case "ctr":
		lists := []string{" images ls", " containers ls -q", " tasks ls -q", "namespaces ls -q"}
		return verb == "version" || slices.ContainsFunc(lists, func(l string) bool { return strings.Contains(" "+args, l) })
	case "containerd":
		return args == "config dump"
	case "timedatectl":
		return verb == "show" || verb == "status"
	case "iptables-save", "ip6tables-save", "iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save",
		"findmnt", "lsmod", "getenforce", "chronyc", "ss", "which", "xfs_info", "ping":
		return true
	case "iptables":
		return args == "-S" || args == "-t nat -S"
	case "firewall-cmd":
		return !slices.ContainsFunc(c.Args, func(a string) bool {
			return !slices.ContainsFunc([]string{"--state", "--permanent", "--zone=", "--get-", "--list-"},
				func(p string) bool { return strings.HasPrefix(a, p) })
		})
	case "ufw":
		return args == "status"
	case "nft":
		return strings.HasPrefix(args, "list ") || strings.HasPrefix(args, "-j list ")
	}
	return false
}

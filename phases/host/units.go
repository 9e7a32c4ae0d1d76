// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"os"
	"path"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/workflow"
)

// UnitDir is the directory of the administrator's systemd units, including ocadm's.
const UnitDir = "/etc/systemd/system"

// Systemctl runs systemctl.
func (h *Host) Systemctl(ctx context.Context, args ...string) (exec.Result, error) {
	return h.Exec.Run(ctx, exec.Command{Path: "systemctl", Args: args})
}

// Enabled reports whether a unit starts at boot.
func (h *Host) Enabled(ctx context.Context, unit string) bool {
	_, err := h.Systemctl(ctx, "is-enabled", unit)
	return err == nil
}

// Enable makes units start at boot. The ledger records those that were not enabled before, so that Disable disables only them.
func (h *Host) Enable(ctx context.Context, r workflow.Reporter, units ...string) error {
	todo := []string{"enable"}
	for _, u := range units {
		if h.Enabled(ctx, u) {
			continue
		}
		if err := h.Ledger.Record(Entry{Kind: KindUnit, Name: u, Op: Created}); err != nil {
			return err
		}
		todo = append(todo, u)
	}
	if len(todo) == 1 {
		return nil
	}
	if _, err := h.Systemctl(ctx, todo...); err != nil {
		return err
	}
	r.Changed("enabled %s", strings.Join(todo[1:], ", "))
	return nil
}

// Start starts a unit, or restarts it.
func (h *Host) Start(ctx context.Context, r workflow.Reporter, unit string, restart bool) error {
	verb := "start"
	if restart {
		verb = "restart"
	}
	if _, err := h.Systemctl(ctx, verb, unit); err != nil {
		return err
	}
	r.Changed("%sed %s", verb, unit)
	return nil
}

// OwnUnit reports whether ocadm wrote or enabled a unit.
func (h *Host) OwnUnit(unit string) bool {
	return h.Ledger.Has(KindFile, path.Join(UnitDir, unit)) || h.Ledger.Has(KindUnit, unit)
}

// Disable stops a unit that ocadm wrote or enabled, and disables it.
func (h *Host) Disable(ctx context.Context, r workflow.Reporter, unit string) error {
	if !h.OwnUnit(unit) {
		return nil
	}
	if res, err := h.Systemctl(ctx, "disable", "--now", unit); err != nil && !strings.Contains(res.Stderr, "does not exist") {
		return err
	}
	r.Changed("stopped and disabled %s", unit)
	return h.Ledger.Forget(KindUnit, unit)
}

// Outdated reports whether a unit's main process runs from a file that has been replaced since it started.
func (h *Host) Outdated(ctx context.Context, unit string) bool {
	res, err := h.Systemctl(ctx, "show", unit, "--property=MainPID", "--value")
	pid := strings.TrimSpace(res.Stdout)
	if err != nil || pid == "" || pid == "0" {
		return false
	}
	exe, err := os.Readlink(h.Files.Path(path.Join("/proc", pid, "exe")))
	return err == nil && strings.HasSuffix(exe, " (deleted)")
}

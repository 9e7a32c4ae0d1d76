// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// executorProgram is a copy of ocadm, so that the service does not depend on a file that the user may move or replace.
	executorProgram = "/usr/local/libexec/ocadm"
	executorUnit    = host.UnitDir + "/" + executor.UnitName
	// startTimeout limits how long the service may take to answer after its start.
	startTimeout  = 30 * time.Second
	startInterval = 100 * time.Millisecond
)

// executorPhase runs the executor as a service of the node, because virtual machines must outlive the pods that start them.
func executorPhase() host.Phase {
	return host.Phase{
		Name: "executor", Short: "Run the executor as a service of the node",
		Long: "Copies ocadm to " + executorProgram + " and runs it as " + executor.UnitName + ". Agents start virtual machines through it.\n" +
			"A restart, for example after an upgrade, does not end them. An executor that is already on the machine is used and not changed.",
		Timeout: 2 * time.Minute,
		Check:   executorDone,
		Plan: func(ctx context.Context, h *host.Host) ([]string, error) {
			if done, err := executorDone(ctx, h); done || err != nil || foreignExecutor(h) {
				return nil, err
			}
			return []string{"copy ocadm to " + executorProgram, "write " + executorUnit, "enable and start " + executor.UnitName}, nil
		},
		Run:    runExecutor,
		Verify: executorAnswers,
		Undo:   undoExecutor,
	}
}

// foreignExecutor reports whether the machine got the service from elsewhere, for example from a vendor's package.
func foreignExecutor(h *host.Host) bool {
	if h.Ledger.Has(host.KindFile, executorUnit) {
		return false
	}
	return slices.ContainsFunc([]string{"/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"}, func(dir string) bool {
		return h.Files.Exists(dir + executor.UnitName)
	})
}

// ForeignExecutor returns a warning if a restart of the machine's own executor would end virtual machines.
func ForeignExecutor(ctx context.Context, h *host.Host) []finding.Finding {
	if !foreignExecutor(h) {
		return nil
	}
	return KillMode(ctx, h, finding.Warning)
}

// KillMode returns a finding if systemd would end virtual machines together with the installed executor.
func KillMode(ctx context.Context, h *host.Host, severity finding.Severity) []finding.Finding {
	res, err := h.Systemctl(ctx, "show", executor.UnitName, "--property=KillMode", "--value")
	mode := strings.TrimSpace(res.Stdout)
	if err != nil || mode == "process" {
		return nil
	}
	dir := executorUnit + ".d"
	return []finding.Finding{{Code: CodeKillMode, Severity: severity, What: "Stopping " + executor.UnitName + " would end virtual machines",
		Cause:  "KillMode is " + mode + " and must be process: virtual machines may run in the control group of this unit",
		Remedy: fmt.Sprintf(`do not restart the unit; mkdir -p %[1]s && printf '[Service]\nKillMode=process\n' >%[1]s/kill-mode.conf && systemctl daemon-reload`, dir)}}
}

func executorDone(ctx context.Context, h *host.Host) (bool, error) {
	if _, err := h.Systemctl(ctx, "is-active", "--quiet", executor.UnitName); err != nil {
		return false, nil //nolint:nilerr // not active: the work is not done
	}
	if foreignExecutor(h) {
		return true, nil
	}
	unit, err := executorFiles()
	if err != nil {
		return false, err
	}
	due := h.Ledger.Has(host.KindRestart, executor.UnitName)
	return !due && len(unit.Todo(h)) == 0 && sameProgram(h) && !h.Outdated(ctx, executor.UnitName) && h.Enabled(ctx, executor.UnitName), nil
}

func executorFiles() (host.FileSet, error) {
	unit, err := executor.Unit{Program: executorProgram}.Render()
	return host.FileSet{{Name: executorUnit, Data: unit, Mode: fileMode}}, err
}

// sameProgram reports whether the copy is this program.
func sameProgram(h *host.Host) bool {
	self, err := (host.Files{}).Digest(h.Self)
	if err != nil {
		return false
	}
	have, err := h.Files.Digest(executorProgram)
	return err == nil && have == self
}

func runExecutor(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if foreignExecutor(h) {
		return finding.New(CodeExecutor, "The executor of this machine does not run",
			executor.UnitName+" was not installed by ocadm, so it was not changed", "systemctl enable --now "+executor.UnitName)
	}
	unit, err := executorFiles()
	if err != nil {
		return err
	}
	if !sameProgram(h) || len(unit.Todo(h)) > 0 { // recorded first: an interrupted run would find the files written
		if err := h.Ledger.Record(host.Entry{Kind: host.KindRestart, Name: executor.UnitName, Op: host.Found}); err != nil {
			return err
		}
	}
	if !sameProgram(h) {
		if err := copyProgram(h); err != nil {
			return err
		}
		r.Changed("wrote %s", executorProgram)
	}
	if _, err := unit.Write(h, r); err != nil {
		return err
	}
	due := h.Ledger.Has(host.KindRestart, executor.UnitName)
	if due {
		if _, err := h.Systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	if err := h.Enable(ctx, r, executor.UnitName); err != nil {
		return err
	}
	// KillMode=process: the processes it started keep running
	if err := h.Start(ctx, r, executor.UnitName, due || h.Outdated(ctx, executor.UnitName)); err != nil {
		return executorDown(err)
	}
	return h.Ledger.Forget(host.KindRestart, executor.UnitName)
}

func executorDown(err error) error {
	return finding.Errorf(CodeExecutor, "The executor does not run", "journalctl -u "+executor.UnitName+" -n 50", "%w", err)
}

func copyProgram(h *host.Host) error {
	self, err := os.Open(h.Self)
	if err != nil {
		return fmt.Errorf("copying ocadm: %w", err)
	}
	defer self.Close()
	if err := h.Files.WriteFrom(executorProgram, self, programMode); err != nil {
		return fmt.Errorf("copying ocadm: %w", err)
	}
	return nil
}

// executorAnswers waits until the service accepts connections.
func executorAnswers(ctx context.Context, h *host.Host) error {
	if h.Files.Root != "" {
		return nil // a directory that stands in for a machine runs no services
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := wait.Until(ctx, "the executor", startInterval, func(ctx context.Context) (bool, string, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", executor.DefaultSocket)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // the reason to keep waiting
		}
		return true, "", c.Close()
	}, func(string) {})
	if err != nil {
		return executorDown(err)
	}
	return nil
}

// undoExecutor removes the service from the machine. Virtual machines that it started keep running.
func undoExecutor(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if h.OwnUnit(executor.UnitName) {
		if vms := virtualMachines(h); len(vms) > 0 {
			r.Info("%d virtual machines keep running on this node; stop or move them with the cloud's tools: processes %s", len(vms), strings.Join(vms, ", "))
		}
	}
	if err := h.Disable(ctx, r, executor.UnitName); err != nil {
		return err
	}
	undone, err := h.Undo(r, executorUnit, executorProgram)
	if err != nil || !slices.Contains(undone, executorUnit) {
		return err
	}
	_, err = h.Systemctl(ctx, "daemon-reload")
	return err
}

// SPDX-License-Identifier: Apache-2.0

// Package doctor finds out why the agents of a compute node do not work: it checks the machine below them and their logs. It changes nothing.
package doctor

import (
	"cmp"
	"context"
	"strings"

	"yunion.io/x/ocadm/internal/agentlog"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/preflight"
)

// The findings of this package. Those about the content of host.conf have the codes of the lines that the agent would log.
const (
	CodeExecutorUnit   = "OCA-7102"
	CodeExecutorSilent = "OCA-7104"
	CodeDirectory      = "OCA-7105"
	CodeHostConf       = "OCA-7106"
	CodeIneffective    = "OCA-7107"
	CodeNodeUnit       = "OCA-7108"
	CodeDisk           = "OCA-7109"
	CodeNoComputeNode  = "OCA-7100"
)

const hostConf = "/etc/yunion/host.conf"

// checks are independent of each other; each returns the problems that it finds.
var checks = []func(context.Context, *host.Host) []finding.Finding{
	executorUnit, executorAnswers, nodeUnits,
	func(_ context.Context, h *host.Host) []finding.Finding { return compute.Programs(h) },
	func(_ context.Context, h *host.Host) []finding.Finding { return compute.Modules(h) },
	func(_ context.Context, h *host.Host) []finding.Finding { return compute.HostName(h) },
	compute.SwitchService, directories, nodeConfiguration, disks, preflight.Clock,
	func(_ context.Context, h *host.Host) []finding.Finding { return agentlog.Explain(podLogs(h.Files)) },
}

// isCompute reports whether a machine is a compute node. host.conf does not show that: host-deployer also creates it on controllers.
func isCompute(files host.Files) bool {
	return files.Any(podLogDir+"/*-host-?????_*") || files.Exists(unitFile)
}

// Gather runs every check on this machine. A machine that is not a compute node gets a single finding.
func Gather(ctx context.Context, h *host.Host) finding.List {
	if !isCompute(h.Files) {
		return finding.List{finding.New(CodeNoComputeNode, "This machine is not a compute node", "it has no "+executor.UnitName+", and no host agent has run on it",
			"ocadm join phase compute --enable-host-agent")}
	}
	// The checks shared with preflight read a node's settings; here they get the state of the machine instead.
	c, node := *h.Config, *h
	c.Node.EnableHostAgent, c.Node.Name = true, cmp.Or(c.Node.Name, h.Facts.Hostname)
	node.Config = &c
	h = &node
	var out finding.List
	for _, check := range checks {
		for _, f := range check(ctx, h) {
			f.Check = "" // nothing here can be ignored by name
			out = append(out, f)
		}
	}
	return out
}

const (
	unitFile   = "/etc/systemd/system/" + executor.UnitName
	unitRemedy = "ocadm join phase compute --enable-host-agent; systemctl enable --now " + executor.UnitName
)

// property reads a unit property from systemd. An empty answer means that the unit is unknown.
func property(ctx context.Context, h *host.Host, unit, name string) (string, error) {
	res, err := h.Systemctl(ctx, "show", unit, "--property="+name, "--value")
	return strings.TrimSpace(res.Stdout), err
}

// executorUnit checks whether the unit runs and whether stopping it would end virtual machines.
func executorUnit(ctx context.Context, h *host.Host) []finding.Finding {
	state, err := property(ctx, h, executor.UnitName, "ActiveState")
	if err != nil {
		return []finding.Finding{finding.Errorf(CodeExecutorUnit, "systemd does not answer", "systemctl status", "%w", err)}
	}
	if state != "active" {
		f := finding.New(CodeExecutorUnit, executor.UnitName+" does not run", "systemd reports "+state+"; without it no agent can run a program on the node",
			"systemctl enable --now "+executor.UnitName+"; journalctl -u "+executor.UnitName+" -n 50")
		if loaded, err := property(ctx, h, executor.UnitName, "LoadState"); err == nil && loaded == "not-found" {
			f.What, f.Remedy = executor.UnitName+" is not installed", unitRemedy
		}
		return []finding.Finding{f}
	}
	return compute.KillMode(ctx, h, finding.Error)
}

// executorAnswers runs a program through the socket, as the agents do.
func executorAnswers(ctx context.Context, h *host.Host) []finding.Finding {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := executor.Client{Socket: h.Files.Path(executor.DefaultSocket)}.Run(ctx, exec.Command{Path: "true"})
	if err == nil {
		return nil
	}
	return []finding.Finding{finding.Errorf(CodeExecutorSilent, "The executor does not run programs",
		"ls -l "+executor.DefaultSocket+"; systemctl restart "+executor.UnitName+" (when its KillMode is process)", "%w", err)}
}

// nodeUnits checks the services that run the agents' pods.
func nodeUnits(ctx context.Context, h *host.Host) []finding.Finding {
	var out []finding.Finding
	for _, unit := range []string{"containerd.service", "kubelet.service"} {
		state, err := property(ctx, h, unit, "ActiveState")
		if err != nil || state == "active" {
			continue // executorUnit reports a systemd that does not answer
		}
		out = append(out, finding.New(CodeNodeUnit, unit+" does not run", "systemd reports "+state+"; the agents' pods need it; virtual machines keep running without it",
			"systemctl restart "+unit+"; journalctl -u "+unit+" -n 50"))
	}
	return out
}

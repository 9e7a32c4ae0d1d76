// SPDX-License-Identifier: Apache-2.0

// Package compute turns a Kubernetes node into a compute node. It provides what the cloud's host agent needs on the machine itself, outside its
// containers: kernel modules, directories, Open vSwitch commands, the executor service and the node's host.conf.
//
// The ledger records every change, and reset undoes exactly those. This package never stops or restarts virtual machines.
package compute

import (
	"context"
	"fmt"
	"slices"

	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// PhaseName is the name of Phase.
const PhaseName = "compute"

// The findings of this package. Preflight reports the first group, before anything changes.
const (
	CodeProgram         = "OCA-1101"
	CodeOptionalProgram = "OCA-1102"
	CodeModule          = "OCA-1103"
	CodeOptionalModule  = "OCA-1104"
	CodeSwitchService   = "OCA-1105"
	CodeNetwork         = "OCA-1106"
	CodeNetworkRisk     = "OCA-1107"
	CodeListenInterface = "OCA-1108"
	CodeImagePath       = "OCA-1109"
	CodeHugepages       = "OCA-1110"
	CodeHostName        = "OCA-1111"

	CodeHostConf = "OCA-1112"
	CodeExecutor = "OCA-1113"

	CodeRegistration = "OCA-1114"

	// CodeKillMode is reported by preflight and "node doctor".
	CodeKillMode = "OCA-7103"
)

// The names of the preflight checks, for --ignore-preflight-errors. Ignoring CheckModules also accepts modules that cannot be loaded.
const (
	CheckPrograms = "ComputePrograms"
	CheckModules  = "ComputeModules"
	CheckSwitch   = "ComputeSwitch"
	CheckExecutor = "ComputeExecutor"
	CheckNetworks = "ComputeNetworks"
	CheckStorage  = "ComputeStorage"
)

const (
	fileMode    = 0o644
	programMode = 0o755
)

// Phase prepares a compute node. It must finish before the kubelet registers the node with its role, because the host agent starts then.
func Phase() host.Phase {
	return host.Phase{
		Name: PhaseName, Short: "Prepare the machine to run virtual machines",
		Long: "Loads kernel modules, creates directories, provides the Open vSwitch commands and the executor, and writes this node's host.conf.\n" +
			"Runs only with --enable-host-agent.",
		Example: "  ocadm join phase compute --enable-host-agent --host-networks eth0/br0/192.0.2.10",
		After:   []string{"preflight"},
		Skip:    workflow.SkipIf("without --enable-host-agent this node runs no virtual machines", func(h *host.Host) bool { return !h.Config.Node.EnableHostAgent }),
		Phases:  []host.Phase{modulesPhase(), directoriesPhase(), commandsPhase(), executorPhase(), hostConfPhase()},
	}
}

// ResetPhases returns the phases that undo Phase on the machine.
func ResetPhases() []host.Phase {
	return []host.Phase{host.Phase{
		Name: "undo-" + PhaseName, Short: "Undo the preparation for virtual machines",
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			for _, p := range slices.Backward(Phase().Phases) {
				if p.Undo == nil {
					continue
				}
				if err := p.Undo(ctx, h, r); err != nil {
					return err
				}
			}
			return nil
		},
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		return lists.Map(recorded(h), func(e host.Entry) string { return fmt.Sprintf("revert %s %s", e.Kind, e.Name) }), nil
	})}
}

// recorded returns the ledger entries that the phases of this package made.
func recorded(h *host.Host) []host.Entry {
	names := slices.Concat([]string{modulesFile, moduleOptionsFile, hostConf, appliedFile, executorProgram, executorUnit, executor.UnitName},
		wrapperPaths())
	return slices.DeleteFunc(h.Ledger.Created(), func(e host.Entry) bool { return !slices.Contains(names, e.Name) })
}

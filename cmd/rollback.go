// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"slices"
	"time"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

// keepCompletedNode disables the rollback of a node that init or join completed before this run, because a rollback removes Kubernetes entirely. A
// failed init that was never repeated may still have left a cluster in use, so it queries the cluster. A cluster that answered an earlier run but is
// silent now is kept.
func keepCompletedNode(ctx context.Context, sink workflow.Sink, plan string, journal *workflow.FileJournal, h *host.Host, opts *workflow.Options) error {
	if opts.OnFailure != workflow.Rollback || !owned.NodeOf(h).Made {
		return nil
	}
	completed, err := journal.Completed("init", "join")
	if err != nil || !completed && plan != "init" { // a cluster that is joined has other nodes
		return err
	}
	why := "this machine is already a node"
	if !completed {
		if why, err = inUse(ctx, journal, h); err != nil {
			return err
		}
	}
	if why == "" {
		return nil
	}
	opts.OnFailure = workflow.Keep
	sink.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseInfo, Plan: plan, Message: why + ": if this run fails, nothing is rolled back"})
	return nil
}

// inUse queries the cluster that an earlier init began.
func inUse(ctx context.Context, journal *workflow.FileJournal, h *host.Host) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	k, err := h.Kube(ctx)
	if err == nil {
		if why, err = cluster.InUse(ctx, k, h.Config.Node.Name); err == nil {
			return why, nil
		}
	}
	entries, err := journal.Entries()
	if slices.ContainsFunc(entries, func(e workflow.Entry) bool {
		return e.Plan == "init" && e.Phase == phases.APIServer && e.Event == string(workflow.PhaseDone)
	}) {
		why = "the API server of this machine answered an earlier run but does not answer now, so the content of the cluster is unknown"
	}
	return why, err
}

// rollBack undoes everything ocadm did on the machine.
func rollBack(ctx context.Context, h *host.Host, plan []host.Phase, sink workflow.Sink) error {
	if len(h.Ledger.Created()) == 0 {
		return nil
	}
	const name = "rollback"
	sink.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseInfo, Plan: name, Message: "rolling back: undoing what ocadm changed on this machine"})
	_, err := workflow.Runner[*host.Host]{Plan: name, Phases: plan, Sink: sink}.Run(ctx, h, workflow.Options{})
	return err
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"time"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

// keepCompletedNode disables the rollback of a node that init or join completed before this run, because a rollback removes Kubernetes entirely. An init that was
// never repeated after an error may have left a cluster that is in use all the same.
func keepCompletedNode(ctx context.Context, sink workflow.Sink, plan string, journal *workflow.FileJournal, h *host.Host, opts *workflow.Options) error {
	if opts.OnFailure != workflow.Rollback || !owned.NodeOf(h).Made {
		return nil
	}
	completed, err := journal.Completed("init", "join")
	if err != nil || !completed && plan != "init" { // a node that joins is one among others
		return err
	}
	why := "this machine is a node already"
	if !completed {
		why = inUse(ctx, h)
	}
	if why == "" {
		return nil
	}
	opts.OnFailure = workflow.Keep
	sink.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseInfo, Plan: plan, Message: why + ": if this run fails, nothing is rolled back"})
	return nil
}

// inUse asks the cluster that an earlier init began. One that does not answer, or has no administrator yet, says nothing.
func inUse(ctx context.Context, h *host.Host) (why string) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if k, err := h.Kube(ctx); err == nil {
		why, _ = cluster.InUse(ctx, k, h.Config.Node.Name) // "" with an error
	}
	return why
}

// rollBack takes back all that ocadm made on the machine.
func rollBack(ctx context.Context, h *host.Host, plan []host.Phase, sink workflow.Sink) error {
	if len(h.Ledger.Created()) == 0 {
		return nil
	}
	const name = "rollback"
	sink.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseInfo, Plan: name, Message: "rolling back: what was made on this machine is taken back"})
	_, err := workflow.Runner[*host.Host]{Plan: name, Phases: plan, Sink: sink}.Run(ctx, h, workflow.Options{})
	return err
}

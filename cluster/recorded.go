// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Recorded controls how a command shows and records the operation that it runs itself: docs/decisions/0056.
type Recorded struct {
	// By names who runs it, and where.
	By string
	// Show is called with each state of the operation.
	Show func(*Operation)
	// Operation is the name of an existing operation that the command runs; "" creates one.
	Operation string
	// Wait bounds the wait for other operations of the cloud; 0 means only the limit of the command.
	Wait time.Duration
	// Answer bounds the wait for the operator to notice the operation; 0 means operation.DefaultAnswer.
	Answer time.Duration
}

func (r Recorded) runner(c client.WithWatch, key client.ObjectKey, spec v1alpha1.OnecloudOperationSpec) operation.Runner {
	spec.Cloud, spec.Requester = key.Name, r.By
	o := &Operation{Spec: spec}
	o.Namespace, o.Name = key.Namespace, r.Operation
	return operation.Runner{Client: c, Operation: o, Name: fmt.Sprintf("%s, process %d", r.By, os.Getpid()), Owner: kube.FieldManager, Show: r.Show, Wait: r.Wait,
		Answer: r.Answer}
}

// longStep bounds a step that copies databases; the command has its own limit.
const longStep = 24 * time.Hour

// step makes a step of a method. Its errors contain the remedy.
func step[S any](run func(S, context.Context, workflow.Reporter) error) func(context.Context, S, workflow.Reporter) error {
	return func(ctx context.Context, s S, r workflow.Reporter) error { return backupFinding(run(s, ctx, r)) }
}

// ShowOn shows an operation within the phase of another plan.
func ShowOn(r workflow.Reporter) func(*Operation) {
	var before *Operation
	return func(o *Operation) {
		for _, line := range OperationChanges(before, o) {
			r.Info("%s", line)
		}
		for _, s := range o.Status.Steps {
			if s.State == v1alpha1.StepRunning && s.Total > 0 {
				r.Progress(s.Done, s.Total, s.Unit)
			}
		}
		before = o.DeepCopy()
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package operation runs the operations of clouds. An action is a value: a list of steps, and the steps that revert them. They run on the engine of the
// installer's phases, with the status of the operation as their journal, so a new operator continues where a killed one stopped. A pure function decides
// which operations may run.
package operation

import (
	"context"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Step is one step of an action.
//
// A step with ReadOnly set changes nothing. If no other step has begun, a failed operation has changed nothing, and nothing is reverted.
type Step = workflow.Phase[*Run]

// Action is a kind of operation.
type Action struct {
	// Name is the value of spec.action.
	Name string
	// Timeout applies to operations that set none.
	Timeout time.Duration
	// Flush is how long a change within a step may take to be written; 0 means one second. Actions that run many times concurrently use more.
	Flush time.Duration
	// Beside actions do not change the cloud: they neither wait for its operation nor delay it. One of each action runs at a time.
	Beside bool
	// Outside actions run in the requesting program: docs/decisions/0056. Left says what such a program may leave behind if it disappears.
	Outside bool
	Left    string
	// Back undoes what such a program did before it could only go forward, and reports whether there was anything to undo; nil if there never is.
	Back func(ctx context.Context, c client.Client, cloud client.ObjectKey, operation string) (bool, error)
	// Job, if set, describes the pod that the steps run in; nil lets the operator run them.
	Job func(context.Context, *v1alpha1.OnecloudOperation) (Job, error)
	// Steps do the work, one after another.
	Steps []Step
	// Clean removes what a read-only step of a killed operator left, if the operation ends before that step runs again; nil if there is nothing.
	Clean func(context.Context, *Run) error
	// Revert undoes what Steps did. Its steps run in this order, and must work no matter which Steps were done.
	Revert []Step
}

// Actions returns all actions, for the components of a catalogue.
func Actions(all []component.Component) []Action {
	return append(outside(), check(), update(waves(all)), rollback(waves(all)), rehearse())
}

func find(all []Action, name string) (Action, bool) {
	i := slices.IndexFunc(all, func(a Action) bool { return a.Name == name })
	if i < 0 {
		return Action{}, false
	}
	return all[i], true
}

// defaultTimeout applies to operations whose action sets no timeout.
const defaultTimeout = 2 * time.Hour

func (a Action) timeout(o *v1alpha1.OnecloudOperation) time.Duration {
	if d, err := time.ParseDuration(o.Spec.Timeout); err == nil && d > 0 {
		return d
	}
	if a.Timeout > 0 {
		return a.Timeout
	}
	return defaultTimeout
}

// Run holds what the steps of an operation share.
type Run struct {
	// Operation has the status that it started with; Status returns the current one.
	Operation *v1alpha1.OnecloudOperation
	Means
	// Settle is how long a wave must serve without interruption.
	Settle time.Duration

	// record holds the current status.
	*record
	// resumed is when this operator resumed the operation, zero if the operation begins here.
	resumed time.Time
	// changed receives a value after each change of the cloud.
	changed chan struct{}
}

// Cloud reads the cloud of the operation from the cache.
func (r *Run) Cloud(ctx context.Context) (*v1alpha1.OnecloudCluster, error) {
	cloud := &v1alpha1.OnecloudCluster{}
	return cloud, r.Client.Get(ctx, client.ObjectKey{Namespace: r.Operation.Namespace, Name: r.Operation.Spec.Cloud}, cloud)
}

// Prefix returns the name prefix of an action's operations.
func Prefix(action string) string { return strings.ToLower(action) + "-" }

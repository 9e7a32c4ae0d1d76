// SPDX-License-Identifier: Apache-2.0

// Package operation runs the operations of clouds. An action is a value: a list of steps, and the steps that take back what they did. The steps
// run on the engine that runs the installer's phases; their journal is the status of the operation, so an operator that was killed goes on
// where it stopped. Which operation may run is decided by values alone.
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
// A step whose ReadOnly is set only looks. If no other step has begun, a failed operation has changed nothing, and nothing is reverted.
type Step = workflow.Phase[*Run]

// skipIf passes over a step, with the reason why, if a condition holds.
func skipIf(why string, cond func(*Run) bool) func(*Run) string {
	return func(r *Run) string {
		if cond(r) {
			return why
		}
		return ""
	}
}

// Action is what an operation can do.
type Action struct {
	// Name is the value of spec.action; Short says what it does.
	Name, Short string
	// Timeout bounds an operation that names none.
	Timeout time.Duration
	// Flush is how long what happens within a step may take to be seen; 0 means a second. What runs many times at once takes longer.
	Flush time.Duration
	// Beside actions change nothing of the cloud: they neither wait for its operation nor keep it waiting. One of each action runs at a time.
	Beside bool
	// Outside actions run in the program that asks for them: docs/decisions/0056. Left says what such a program leaves that ends without a word.
	Outside bool
	Left    string
	// Back takes back what such a program did for an operation before it could only go forward, and reports whether there was something; nil if there never is.
	Back func(ctx context.Context, c client.Client, cloud client.ObjectKey, operation string) (bool, error)
	// Job, if set, says how the steps run in a pod of their own; nil lets the operator run them.
	Job func(context.Context, *v1alpha1.OnecloudOperation) (Job, error)
	// Steps do the work, one after another.
	Steps []Step
	// Revert are the steps that take back what Steps did, in the order in which they run. They must be able to run whatever Steps were done.
	Revert []Step
}

// Actions are all there are, for the components of a catalogue.
func Actions(all []component.Component) []Action {
	return append(outside(), check(), update(waves(all)), rollback(waves(all)), rehearse())
}

// find returns the action of a name.
func find(all []Action, name string) (Action, bool) {
	i := slices.IndexFunc(all, func(a Action) bool { return a.Name == name })
	if i < 0 {
		return Action{}, false
	}
	return all[i], true
}

// defaultTimeout bounds an operation whose action has no time of its own.
const defaultTimeout = 2 * time.Hour

// timeout of an operation.
func (a Action) timeout(o *v1alpha1.OnecloudOperation) time.Duration {
	if d, err := time.ParseDuration(o.Spec.Timeout); err == nil && d > 0 {
		return d
	}
	if a.Timeout > 0 {
		return a.Timeout
	}
	return defaultTimeout
}

// Run is what the steps of an operation share.
type Run struct {
	// Operation that runs. Its status is that of its start; Status returns that of now.
	Operation *v1alpha1.OnecloudOperation
	Means
	// Settle is how long a wave must serve without interruption.
	Settle time.Duration

	// record has the status of now.
	*record
	// resumed is when this operator took up an operation that had begun, zero if it begins here.
	resumed time.Time
	// changed gets something after each change of the cloud.
	changed chan struct{}
}

// Cloud reads the cloud of the operation from the cache.
func (r *Run) Cloud(ctx context.Context) (*v1alpha1.OnecloudCluster, error) {
	cloud := &v1alpha1.OnecloudCluster{}
	return cloud, r.Client.Get(ctx, client.ObjectKey{Namespace: r.Operation.Namespace, Name: r.Operation.Spec.Cloud}, cloud)
}

// Prefix of the names of an action's operations.
func Prefix(action string) string { return strings.ToLower(action) + "-" }

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// Keep is how many operations of a cloud that have ended are kept.
const Keep = 20

// KeepOfMachine is how many operations of a machine that have ended are kept.
const KeepOfMachine = 3

// KeepOfBackups is how many backups that have ended are kept, beside the other operations of a cloud: one of each night must not push those out.
const KeepOfBackups = 10

// decision is what becomes of the operations of a cloud.
type decision struct {
	// run is the operation of the cloud that is to run, nil if none.
	run *v1alpha1.OnecloudOperation
	// beside are those that are to run beside it: of machines at most one of each, and one of each action that leaves the cloud alone.
	beside []*v1alpha1.OnecloudOperation
	// pending are messages for those that wait, by name.
	pending map[string]string
	// end are those that end without having begun, with their phase and message.
	end map[string]ending
	// prune are those that are too old to be kept.
	prune []*v1alpha1.OnecloudOperation
}

type ending struct {
	phase   v1alpha1.OperationPhase
	message string
}

// cancelled reports whether a user wants an operation to end.
func cancelled(o *v1alpha1.OnecloudOperation) bool {
	return o.Annotations[v1alpha1.AnnotationControl] == v1alpha1.OperationCancel || o.DeletionTimestamp != nil
}

// paused reports whether a user, or a step that failed, wants it to rest.
func paused(o *v1alpha1.OnecloudOperation) bool {
	return o.Annotations[v1alpha1.AnnotationControl] == v1alpha1.OperationPause
}

// decide is pure. all are the operations of one cloud; there is the cloud itself, nil if it does not exist. Operations of machines run beside that of
// the cloud, atOnce of them, and so do those that leave the cloud alone.
func decide(all []*v1alpha1.OnecloudOperation, there *v1alpha1.OnecloudCluster, actions []Action, atOnce int) decision {
	d := decision{pending: map[string]string{}, end: map[string]ending{}}
	var over, waiting, aside []*v1alpha1.OnecloudOperation
	var machines queue
	for _, o := range all {
		switch a, known := find(actions, o.Spec.Action); {
		case o.Status.Phase.Final():
			over = append(over, o)
		case there == nil && !o.Status.Phase.Active():
			d.end[o.Name] = ending{v1alpha1.OperationFailed, fmt.Sprintf("there is no cloud %s/%s", o.Namespace, o.Spec.Cloud)}
		case there == nil || there.DeletionTimestamp != nil:
			d.end[o.Name] = ending{v1alpha1.OperationCancelled, "the cloud was deleted"}
		case !known:
			d.end[o.Name] = ending{v1alpha1.OperationFailed, fmt.Sprintf("this operator knows no action %q", o.Spec.Action)}
		case !o.Status.Phase.Active() && cancelled(o):
			d.end[o.Name] = ending{v1alpha1.OperationCancelled, "cancelled before it began"}
		case o.MachineName() != "":
			machines.add(o)
		case a.Beside:
			aside = append(aside, o)
		case o.Status.Phase.Active():
			d.run = first(d.run, o)
		default:
			waiting = append(waiting, o)
		}
	}
	slices.SortFunc(waiting, InTurn)
	if d.run == nil {
		i := slices.IndexFunc(waiting, func(o *v1alpha1.OnecloudOperation) bool { return !paused(o) && !unannounced(o, actions) })
		if i >= 0 {
			d.run = waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
		}
	}
	waiting = d.withoutRepeats(waiting)
	for i, o := range waiting {
		switch {
		case paused(o):
			d.pending[o.Name] = "paused before it began"
		case unannounced(o, actions):
			d.pending[o.Name] = "waits for the program that runs it"
		case i > 0 && !paused(waiting[i-1]) && !unannounced(waiting[i-1], actions):
			d.pending[o.Name] = "waits for operation " + waiting[i-1].Name
		default:
			d.pending[o.Name] = "waits for operation " + d.run.Name
		}
	}
	d.beside = append(machines.turn(atOnce, d.pending), oneOfEach(aside, d.pending)...)
	slices.SortFunc(over, func(a, b *v1alpha1.OnecloudOperation) int { return -InTurn(a, b) })
	d.prune = tooOld(over)
	return d
}

// withoutRepeats ends the operations that ask again for what one before them does, and returns the others: a second update would replace the copies of the
// databases that the first one made.
func (d *decision) withoutRepeats(waiting []*v1alpha1.OnecloudOperation) []*v1alpha1.OnecloudOperation {
	var before []*v1alpha1.OnecloudOperation
	if d.run != nil {
		before = append(before, d.run)
	}
	return slices.DeleteFunc(waiting, func(o *v1alpha1.OnecloudOperation) bool {
		i := slices.IndexFunc(before, func(b *v1alpha1.OnecloudOperation) bool { return moves(o) && Repeats(o, b) })
		if i >= 0 {
			d.end[o.Name] = ending{v1alpha1.OperationCancelled, fmt.Sprintf("operation %s, which has not ended, does the same", before[i].Name)}
		} else {
			before = append(before, o)
		}
		return i >= 0
	})
}

// moves reports whether an operation brings the cloud to another release.
func moves(o *v1alpha1.OnecloudOperation) bool {
	return o.Spec.Action == v1alpha1.ActionUpdate || o.Spec.Action == v1alpha1.ActionRollback
}

// Repeats reports whether an operation asks for the same as an earlier one that may still do it. Who asks makes no difference.
func Repeats(o, earlier *v1alpha1.OnecloudOperation) bool {
	spec := earlier.Spec
	spec.Requester = o.Spec.Requester
	return !earlier.Status.Phase.Final() && earlier.Status.Phase != v1alpha1.OperationReverting && !cancelled(earlier) && equality.Semantic.DeepEqual(spec, o.Spec)
}

// tooOld are those of the operations that have ended, the latest first, that are not kept.
func tooOld(over []*v1alpha1.OnecloudOperation) []*v1alpha1.OnecloudOperation {
	kept := map[string]int{}
	return slices.DeleteFunc(over, func(o *v1alpha1.OnecloudOperation) bool {
		limit, of := Keep, o.MachineName()
		switch {
		case of != "":
			limit = KeepOfMachine
		case o.Spec.Action == v1alpha1.ActionBackup:
			limit, of = KeepOfBackups, "/"
		}
		kept[of]++
		return kept[of] <= limit
	})
}

// first of two operations that have both begun: that cannot be, but if it were, only one may go on.
func first(a, b *v1alpha1.OnecloudOperation) *v1alpha1.OnecloudOperation {
	if a == nil || InTurn(b, a) < 0 {
		return b
	}
	return a
}

// InTurn orders operations as they were asked for. Times have whole seconds: of those of the same second, the ones that have begun come first, in the order
// in which they did.
func InTurn(a, b *v1alpha1.OnecloudOperation) int {
	turn := func(o *v1alpha1.OnecloudOperation) int64 { return cmp.Or(o.Status.Turn, math.MaxInt64) }
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(turn(a), turn(b)), cmp.Compare(a.Name, b.Name))
}

// conditions of a status, for kubectl wait.
func conditions(s *v1alpha1.OnecloudOperationStatus, now metav1.Time) {
	complete, succeeded := metav1.ConditionFalse, metav1.ConditionUnknown
	if s.Phase.Final() {
		complete, succeeded = metav1.ConditionTrue, metav1.ConditionFalse
	}
	if s.Phase == v1alpha1.OperationSucceeded {
		succeeded = metav1.ConditionTrue
	}
	for _, c := range []metav1.Condition{
		{Type: v1alpha1.ConditionComplete, Status: complete}, {Type: v1alpha1.ConditionSucceeded, Status: succeeded},
	} {
		c.Reason, c.LastTransitionTime = cmp.Or(string(s.Phase), "Pending"), now
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

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

// candidate is an operation that has begun, or is to.
type candidate struct {
	*v1alpha1.OnecloudOperation
	// lane is where it waits for its turn: of each, one runs at a time. That of the cloud is "".
	lane string
	// held says why it does not want its turn yet, "" if it does.
	held string
}

func candidateOf(o *v1alpha1.OnecloudOperation, a Action) candidate {
	c := candidate{OnecloudOperation: o}
	switch {
	case o.MachineName() != "":
		c.lane = "machine " + o.MachineName()
	case a.Beside:
		c.lane = "action " + a.Name
	}
	switch {
	case o.Status.Phase.Active():
	case paused(o):
		c.held = "paused before it began"
	case a.Outside && o.Status.Runner == nil && !asked(o):
		c.held = "waits for the program that runs it"
	}
	return c
}

// decide is pure. all are the operations of one cloud; there is the cloud itself, nil if it does not exist. Operations of machines run beside that of
// the cloud, atOnce of them, and so do those that leave the cloud alone.
func decide(all []*v1alpha1.OnecloudOperation, there *v1alpha1.OnecloudCluster, actions []Action, atOnce int) decision {
	d := decision{pending: map[string]string{}, end: map[string]ending{}}
	var over []*v1alpha1.OnecloudOperation
	var open []candidate
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
		default:
			open = append(open, candidateOf(o, a))
		}
	}
	slices.SortFunc(open, func(a, b candidate) int {
		begun := func(c candidate) int { return map[bool]int{true: -1}[c.Status.Phase.Active()] }
		return cmp.Or(begun(a)-begun(b), InTurn(a.OnecloudOperation, b.OnecloudOperation))
	})
	if i := slices.IndexFunc(open, func(c candidate) bool { return c.lane == "" && c.held == "" }); i >= 0 {
		d.run = open[i].OnecloudOperation
	}
	d.queue(d.withoutRepeats(open), atOnce)
	slices.SortFunc(over, func(a, b *v1alpha1.OnecloudOperation) int { return -InTurn(a, b) })
	d.prune = tooOld(over)
	return d
}

// DefaultMachinesAtOnce is how many machines of a cloud are worked on at once.
const DefaultMachinesAtOnce = 10

// queue chooses those that run beside the operation of the cloud, and says what the others wait for. open are sorted: those that have begun come first.
// Of machines, atOnce are worked on; one that is paused takes no place of another. One operation at a time makes or takes away a control-plane node: etcd
// takes one new member at a time, and must not lose two at once.
func (d *decision) queue(open []candidate, atOnce int) {
	last := map[string]candidate{} // by lane
	var controlPlane *v1alpha1.OnecloudOperation
	machines := 0
	for _, o := range open {
		waits, before := "", last[o.lane]
		ofMachine := o.MachineName() != ""
		changesControlPlane := ofMachine && o.Spec.Machine.ControlPlane
		begun, behind := o.Status.Phase.Active(), before.OnecloudOperation != nil
		switch {
		case begun && behind: // that cannot be, but if it were, only one may go on
			continue
		case o.held != "":
			d.pending[o.Name] = o.held
			continue
		case behind:
			waits = "waits for operation " + before.Name
		case begun:
		case changesControlPlane && controlPlane != nil:
			waits = "waits for operation " + controlPlane.Name + ": one control-plane node joins or leaves at a time"
		case ofMachine && machines >= atOnce:
			waits = fmt.Sprintf("waits until one of %d other machines is done", atOnce)
		}
		last[o.lane] = o
		if waits != "" {
			d.pending[o.Name] = waits
			continue
		}
		if o.lane != "" {
			d.beside = append(d.beside, o.OnecloudOperation)
		}
		if changesControlPlane {
			controlPlane = o.OnecloudOperation
		}
		if ofMachine && o.Status.Phase != v1alpha1.OperationPaused {
			machines++
		}
	}
}

// withoutRepeats ends the operations that ask again for what one before them does, and returns the others: a second update would replace the copies of the
// databases that the first one made.
func (d *decision) withoutRepeats(open []candidate) []candidate {
	var before []*v1alpha1.OnecloudOperation
	if d.run != nil {
		before = append(before, d.run)
	}
	return slices.DeleteFunc(open, func(o candidate) bool {
		if !moves(o.OnecloudOperation) || o.Status.Phase.Active() || o.OnecloudOperation == d.run {
			return false
		}
		i := slices.IndexFunc(before, func(b *v1alpha1.OnecloudOperation) bool { return Repeats(o.OnecloudOperation, b) })
		if i < 0 {
			before = append(before, o.OnecloudOperation)
			return false
		}
		d.end[o.Name] = ending{v1alpha1.OperationCancelled, fmt.Sprintf("operation %s, which has not ended, does the same", before[i].Name)}
		return true
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

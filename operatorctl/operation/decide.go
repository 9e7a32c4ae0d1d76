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
	"yunion.io/x/ocadm/internal/lists"
)

// Keep is how many ended operations of a cloud are kept.
const Keep = 20

// KeepOfMachine is how many ended operations of a machine are kept, of each action: checks must not push out a join that failed or was cancelled, because
// the machine would join again.
const KeepOfMachine = 3

// KeepOfBackups is how many ended backups are kept, and how many updates and rollbacks that changed nothing. Both are counted separately: nightly backups,
// or a tool that writes an earlier spec.version every few minutes, must not push out operations that say which databases hold replaced contents.
const KeepOfBackups = 10

type decision struct {
	// run is the cloud's operation that should run, or nil.
	run *v1alpha1.OnecloudOperation
	// beside are the operations that should run beside it: at most one of each machine, and one of each action that does not change the cloud.
	beside []*v1alpha1.OnecloudOperation
	// pending holds the messages of waiting operations, by name.
	pending map[string]string
	// end holds the phases and messages of operations that must end, by name.
	end map[string]ending
	// prune are the operations that are too old to keep.
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

// paused reports whether a user, or a failed step, wants an operation to pause.
func paused(o *v1alpha1.OnecloudOperation) bool {
	return o.Annotations[v1alpha1.AnnotationControl] == v1alpha1.OperationPause
}

// candidate is an operation that has begun or may begin.
type candidate struct {
	*v1alpha1.OnecloudOperation
	// lane is the queue that it waits in: one operation of each lane runs at a time. The cloud's lane is "".
	lane string
	// held is the reason why it may not begin yet, or "" if it may.
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
		c.held = "paused before it started"
	case a.Outside && o.Status.Runner == nil && !asked(o):
		c.held = "waiting for the program that runs it"
	}
	return c
}

// decide decides on all operations of one cloud. there is the cloud, or nil if it does not exist. Operations of up to atOnce machines, and those that do
// not change the cloud, run beside that of the cloud. It is pure.
func decide(all []*v1alpha1.OnecloudOperation, there *v1alpha1.OnecloudCluster, actions []Action, atOnce int) decision {
	d := decision{pending: map[string]string{}, end: map[string]ending{}}
	var over []*v1alpha1.OnecloudOperation
	var open []candidate
	for _, o := range all {
		switch a, known := find(actions, o.Spec.Action); {
		case o.Status.Phase.Final():
			over = append(over, o)
		case there == nil && !o.Status.Phase.Active():
			d.end[o.Name] = ending{v1alpha1.OperationFailed, fmt.Sprintf("cloud %s/%s does not exist", o.Namespace, o.Spec.Cloud)}
		case there == nil || there.DeletionTimestamp != nil || OfFormerCloud(o, there):
			d.end[o.Name] = ending{v1alpha1.OperationCancelled, "the cloud was deleted"}
		case !known:
			d.end[o.Name] = ending{v1alpha1.OperationFailed, fmt.Sprintf("this operator does not support action %q", o.Spec.Action)}
		case !o.Status.Phase.Active() && cancelled(o):
			d.end[o.Name] = ending{v1alpha1.OperationCancelled, "cancelled before it started"}
		default:
			open = append(open, candidateOf(o, a))
		}
	}
	slices.SortFunc(open, func(a, b candidate) int {
		return cmp.Or(lists.TrueFirst(a.Status.Phase.Active(), b.Status.Phase.Active()), InTurn(a.OnecloudOperation, b.OnecloudOperation))
	})
	if i := slices.IndexFunc(open, func(c candidate) bool { return c.lane == "" && c.held == "" }); i >= 0 {
		d.run = open[i].OnecloudOperation
	}
	d.queue(d.withoutRepeats(open), atOnce)
	slices.SortFunc(over, func(a, b *v1alpha1.OnecloudOperation) int { return -InTurn(a, b) })
	d.prune = tooOld(over)
	return d
}

// DefaultMachinesAtOnce is how many machines of a cloud are worked on concurrently.
const DefaultMachinesAtOnce = 10

// queue chooses the operations that run beside that of the cloud, and sets what the others wait for. open is sorted: operations that have begun come
// first. Up to atOnce machines are worked on; paused operations do not count. Control-plane nodes join or leave one at a time: etcd accepts one new member
// at a time, and must not lose two together.
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
		case begun && behind: // cannot happen, but if it did, only one may continue
			continue
		case o.held != "":
			d.pending[o.Name] = o.held
			continue
		case behind:
			waits = "waiting for operation " + before.Name
		case begun:
		case changesControlPlane && controlPlane != nil:
			waits = "waiting for operation " + controlPlane.Name + ": one control-plane node joins or leaves at a time"
		case ofMachine && machines >= atOnce:
			waits = fmt.Sprintf("waiting until one of %d other machines is done", atOnce)
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

// withoutRepeats ends operations that repeat the one before them, and returns the others. A second update would replace the database copies that the first
// one made.
func (d *decision) withoutRepeats(open []candidate) []candidate {
	before := d.run
	return slices.DeleteFunc(open, func(o candidate) bool {
		if !moves(o.OnecloudOperation) || o.Status.Phase.Active() || o.OnecloudOperation == d.run {
			return false
		}
		if before == nil || !Repeats(o.OnecloudOperation, before) {
			before = o.OnecloudOperation
			return false
		}
		d.end[o.Name] = ending{v1alpha1.OperationCancelled, fmt.Sprintf("it repeats operation %s, which has not ended", before.Name)}
		return true
	})
}

// moves reports whether an operation moves the cloud to another release.
func moves(o *v1alpha1.OnecloudOperation) bool {
	return o.Spec.Action == v1alpha1.ActionUpdate || o.Spec.Action == v1alpha1.ActionRollback
}

// Repeats reports whether an operation requests the same as an earlier one that may still do it. The requester does not matter.
func Repeats(o, earlier *v1alpha1.OnecloudOperation) bool {
	spec := earlier.Spec
	spec.Requester = o.Spec.Requester
	return !earlier.Status.Phase.Final() && earlier.Status.Phase != v1alpha1.OperationReverting && !cancelled(earlier) && equality.Semantic.DeepEqual(spec, o.Spec)
}

// tooOld returns the ended operations that are not kept. over lists the latest first.
func tooOld(over []*v1alpha1.OnecloudOperation) []*v1alpha1.OnecloudOperation {
	kept := map[string]int{}
	return slices.DeleteFunc(over, func(o *v1alpha1.OnecloudOperation) bool {
		limit, of := Keep, o.MachineName()
		switch {
		case of != "":
			limit, of = KeepOfMachine, o.Spec.Action+"/"+of
		case o.Spec.Action == v1alpha1.ActionBackup, moves(o) && o.Status.Rollout == nil:
			limit, of = KeepOfBackups, "/"+o.Spec.Action
		}
		kept[of]++
		return kept[of] <= limit
	})
}

// InTurn compares operations by when they were requested. Timestamps have whole seconds: within a second, operations that have begun come first, in the
// order in which they began.
func InTurn(a, b *v1alpha1.OnecloudOperation) int {
	turn := func(o *v1alpha1.OnecloudOperation) int64 { return cmp.Or(o.Status.Turn, math.MaxInt64) }
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(turn(a), turn(b)), cmp.Compare(a.Name, b.Name))
}

// conditions sets the conditions, for kubectl wait.
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

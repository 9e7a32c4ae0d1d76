// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// DefaultMachinesAtOnce is how many machines of a cloud are worked on at once.
const DefaultMachinesAtOnce = 10

// queue holds the operations of machines that have not ended.
type queue struct {
	active, waiting []*v1alpha1.OnecloudOperation
}

func (q *queue) add(o *v1alpha1.OnecloudOperation) {
	if o.Status.Phase.Active() {
		q.active = append(q.active, o)
		return
	}
	q.waiting = append(q.waiting, o)
}

// controlPlane reports whether an operation makes or takes away a control-plane node: etcd takes one new member at a time, and must not lose two at once.
func controlPlane(o *v1alpha1.OnecloudOperation) bool { return o.Spec.Machine.ControlPlane }

// turn are those that are to run: one of a machine, one that changes the control plane, and atOnce of all. Of the others, pending says by name what they
// wait for. One that is paused takes no place of another machine.
func (q *queue) turn(atOnce int, pending map[string]string) []*v1alpha1.OnecloudOperation {
	busy := map[string]*v1alpha1.OnecloudOperation{}
	slices.SortFunc(q.active, InTurn)
	slices.SortFunc(q.waiting, InTurn)
	var run []*v1alpha1.OnecloudOperation
	var changes *v1alpha1.OnecloudOperation
	taken := 0
	for _, o := range q.active {
		if busy[o.MachineName()] != nil { // that cannot be, but if it were, only one may go on
			continue
		}
		busy[o.MachineName()] = o
		if controlPlane(o) {
			changes = o
		}
		run = append(run, o)
		if o.Status.Phase != v1alpha1.OperationPaused {
			taken++
		}
	}
	for _, o := range q.waiting {
		other := busy[o.MachineName()]
		switch {
		case paused(o):
			pending[o.Name] = "paused before it began"
			continue
		case other != nil:
			pending[o.Name] = "waits for operation " + other.Name
			continue
		case controlPlane(o) && changes != nil:
			pending[o.Name] = "waits for operation " + changes.Name + ": one control-plane node joins or leaves at a time"
		case taken >= atOnce:
			pending[o.Name] = fmt.Sprintf("waits until one of %d other machines is done", atOnce)
		default:
			run = append(run, o)
			taken++
			if controlPlane(o) {
				changes = o
			}
		}
		busy[o.MachineName()] = o
	}
	return run
}

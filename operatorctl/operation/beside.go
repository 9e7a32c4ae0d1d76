// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// oneOfEach are those of the operations of Beside actions that are to run: one of each action, that which has begun before those that have not. Of the
// others, pending says by name what they wait for.
func oneOfEach(all []*v1alpha1.OnecloudOperation, pending map[string]string) []*v1alpha1.OnecloudOperation {
	slices.SortFunc(all, func(a, b *v1alpha1.OnecloudOperation) int {
		if begun := a.Status.Phase.Active(); begun != b.Status.Phase.Active() {
			return map[bool]int{true: -1, false: 1}[begun]
		}
		return InTurn(a, b)
	})
	var run []*v1alpha1.OnecloudOperation
	before := map[string]*v1alpha1.OnecloudOperation{}
	for _, o := range all {
		switch other := before[o.Spec.Action]; {
		case other == nil && (o.Status.Phase.Active() || !paused(o)):
			run = append(run, o)
		case o.Status.Phase.Active(): // that cannot be, but if it were, only one may go on
			continue
		case paused(o):
			pending[o.Name] = "paused before it began"
			continue
		default:
			pending[o.Name] = "waits for operation " + other.Name
		}
		before[o.Spec.Action] = o
	}
	return run
}

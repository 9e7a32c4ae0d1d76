// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stuckAfter is how long something may take to go before it is named.
const stuckAfter = 30 * time.Second

// holding says what does not go although it was deleted a while ago, and who keeps it: a finalizer of somebody else, or a node that does
// not end a pod. Empty if nothing is overdue.
func (p *pass) holding(left map[string][]client.Object) string {
	var out []string
	add := func(what string, o client.Object, otherwise string) {
		at := o.GetDeletionTimestamp()
		if at == nil || p.now.Before(at.Add(stuckAfter)) {
			return
		}
		why := otherwise
		if f := o.GetFinalizers(); len(f) > 0 {
			why = "is kept by finalizer " + strings.Join(f, ", ")
		}
		if why != "" {
			out = append(out, what+" "+o.GetName()+" "+why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		for _, o := range left[name] {
			add(o.GetObjectKind().GroupVersionKind().Kind, o, "") // without a finalizer it only waits for its pods
		}
	}
	for i := range p.live.pods {
		pod := &p.live.pods[i]
		add("pod", pod, fmt.Sprintf("does not end on node %q", pod.Spec.NodeName))
	}
	if len(out) == 0 {
		return ""
	}
	return "; " + strings.Join(out, "; ")
}

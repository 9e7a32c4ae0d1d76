// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stuckAfter is how long a node may take to end a pod before it is named.
const stuckAfter = 30 * time.Second

// holding says what was deleted and does not go, and who keeps it: a finalizer of somebody else or, after a while, a node that does not
// end a pod, or nobody who would. Empty if nothing is held.
func (p *pass) holding(left map[string][]client.Object) string {
	var out []string
	add := func(what string, o client.Object, otherwise string) {
		at := o.GetDeletionTimestamp()
		if at == nil {
			return
		}
		why := otherwise
		if p.now.Before(at.Add(stuckAfter)) {
			why = ""
		}
		others := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool {
			return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents // the garbage collector's, soon over
		})
		if len(others) > 0 {
			why = "is kept by " + finalizers(others)
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
	for _, pod := range p.orphans(left) {
		out = append(out, fmt.Sprintf("pod %s belongs to nothing that would end it (kubectl -n %s delete pod %s)", pod, p.cr.Namespace, pod))
	}
	if len(out) == 0 {
		return ""
	}
	return "; " + strings.Join(out, "; ")
}

// orphans are the pods that nobody has begun to end, although their workload has been gone for a while: its deletion left them behind
// ("kubectl delete --cascade=orphan"), or somebody made them by hand with our labels. They are not ours to delete.
func (p *pass) orphans(left map[string][]client.Object) (names []string) {
	seen := p.m.orphans
	p.m.orphans = map[types.UID]time.Time{}
	for i := range p.live.pods {
		pod := &p.live.pods[i]
		if len(left[p.componentOf(pod)]) > 0 || pod.DeletionTimestamp != nil {
			continue
		}
		since, known := seen[pod.UID]
		if !known {
			since = p.now
		}
		p.m.orphans[pod.UID] = since
		if !p.now.Before(since.Add(stuckAfter)) {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

func finalizers(names []string) string {
	if len(names) == 1 {
		return "the finalizer " + names[0]
	}
	return "the finalizers " + strings.Join(names, ", ")
}

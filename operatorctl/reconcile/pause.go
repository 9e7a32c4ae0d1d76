// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/status"
)

// pause is what a user made the operator leave alone: the whole cloud, or some components.
type pause struct {
	all        bool
	components map[string]bool
	// unknown lists names in the annotation that match nothing.
	unknown []string
}

// pausedBy finds the components that the annotation of a cloud names.
func pausedBy(annotation string, catalog []component.Component) pause {
	all, names := v1alpha1.Paused(annotation)
	p := pause{all: all, components: map[string]bool{}}
	for _, name := range names {
		found := false
		for _, c := range catalog {
			if c.Name == name || c.SpecKey == name {
				p.components[c.Name], found = true, true
			}
		}
		if !found {
			p.unknown = append(p.unknown, name)
		}
	}
	slices.Sort(p.unknown)
	return p
}

// rest leaves a paused cloud alone, but keeps reporting its status.
func (r *Reconciler) rest(ctx context.Context, m *cloud, s State) (ctrl.Result, error) {
	out := status.Of(s.Cloud, s.Now)
	var due time.Time
	if r.options.Audit > 0 {
		due = s.Now.Add(r.options.Audit) // conditions change with time alone
	}
	for i, c := range out.Components {
		var w *status.Workload
		for key, o := range s.Live.objects {
			if key.Name != s.Cloud.Name+"-"+c.Name {
				continue
			}
			if is := status.WorkloadOf(o, s.seen()); is != nil {
				w, due = is, wait.Earliest(due, is.Due)
			}
		}
		out.Components[i] = status.WhilePaused(c, w, s.Now)
	}
	if len(out.Components) > 0 {
		out.Summarize()
	}
	surroundings(s, out)
	out.Paused()
	var events []pendingEvent
	events, m.last.lost = nodeEvents(s)
	events = append(events, conditionEvents(s.Cloud.Status, out.OnecloudClusterStatus)...)
	var next ctrl.Result
	if !due.IsZero() {
		next.RequeueAfter = max(due.Sub(r.reads.now()), soon)
	}
	return next, r.acts.publish(ctx, m, s, out, append(transitions(s.Cloud.Status, out.OnecloudClusterStatus), events...))
}

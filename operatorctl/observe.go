// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/status"
)

// observe works out of the live objects which components serve what was rendered, and which are Available: those may be asked
// something, and those that come after them may start.
func (p *pass) observe() {
	for _, c := range p.parts {
		c.workload, c.twins, c.current, c.serving, c.available = nil, nil, false, false, false
		if !c.Enabled || c.err != nil {
			continue
		}
		c.serving = p.serves(c)
		c.available = c.serving && p.finished(c, effects.Before) && p.finished(c, effects.After)
	}
}

// serves tells whether the workload that was rendered is the live one and its pods are ready. A component without a workload serves.
func (p *pass) serves(c *part) bool {
	w, ok := c.workloadWant()
	if c.Workload.Kind == component.NoWorkload || !ok {
		return true
	}
	o := p.r.applier.Latest(w.key, p.live.objects[w.key])
	if o == nil {
		return false
	}
	c.workload, c.twins = status.WorkloadOf(o, p.seen()), p.twins(c)
	if c.paused = c.left || p.isPaused(w.key); c.paused {
		return c.workload.Serving() // as the person who paused it wants it
	}
	c.current = o.GetAnnotations()[engine.HashAnnotation] == w.hash
	// While a cloud is made, nothing of it serves anybody yet: what comes after does not wait for others to last.
	return c.current && (c.workload.Serving() || p.cr.Status.Version == "" && c.workload.Started())
}

// twins are the further workloads of a component.
func (p *pass) twins(c *part) []status.Twin {
	var out []status.Twin
	for _, w := range c.wants {
		if w.role == roleTwin && w.key.GVK.Kind == "Deployment" {
			o := p.r.applier.Latest(w.key, p.live.objects[w.key])
			t := status.Twin{Name: w.key.Name}
			if o != nil {
				t.Workload = status.WorkloadOf(o, p.seen())
			}
			out = append(out, t)
		}
	}
	return out
}

// replicaDown tells whether a component is to have read-only replicas and none of them answers, so that nobody is to be sent there.
func (p *pass) replicaDown(c *part) bool {
	if !c.Workload.ReadReplicas || c.SlaveReplicas == 0 {
		return false
	}
	o := p.live.objects[engine.Key{GVK: appsv1.SchemeGroupVersion.WithKind("Deployment"), Namespace: p.cr.Namespace, Name: p.cluster.Object(c.Name) + render.Slave}]
	w := status.WorkloadOf(o, p.seen())
	return w == nil || w.Answering == 0
}

// seen is what the live workloads are judged by.
func (p *pass) seen() status.Seen {
	return status.Seen{Pods: p.live.pods, Nodes: p.live.nodes, Now: p.now}
}

// finished tells whether all effects of a stage that anybody waits for are done under the hash they have now.
func (p *pass) finished(c *part, stage effects.Stage) bool {
	if c.left {
		return true
	}
	for _, e := range p.plan {
		if e.Component != c.Name || e.Stage != stage || e.Aside || p.cr.Status.Effects[e.Key] == e.Hash {
			continue
		}
		done := slices.ContainsFunc(c.outcomes, func(o effects.Outcome) bool { return o.Effect.Key == e.Key && o.State == effects.Done })
		if !done {
			return false
		}
	}
	return true
}

// observed is what package status judges a component by.
func (p *pass) observed(c *part) status.Observed {
	o := status.Observed{
		Name: c.Name, Previous: previous(p.cr, c.Name), Resolved: c.Resolved, Problem: c.Problem, InvalidOptions: c.invalid,
		BlockedBy: c.gated, Workload: c.workload, Current: c.current, Twins: c.twins, Paused: c.paused, Left: c.left, Now: p.now,
	}
	if c.err != nil && c.Problem == "" {
		o.Refused, o.RefusedReason = c.err.Error(), status.ReasonNotApplied
	}
	for _, r := range c.refusals {
		if o.Refused == "" || o.RefusedReason == engine.ReasonTerminating {
			o.Refused, o.RefusedReason = r.Error(), r.Reason
		}
	}
	for _, k := range c.kept {
		o.Kept = append(o.Kept, status.Kept{Reason: k.Reason, Message: k.Message})
	}
	for _, out := range c.outcomes {
		if out.State == effects.Done {
			continue
		}
		e := status.Effect{Key: out.Effect.Key, Before: out.Effect.Stage == effects.Before}
		if out.Err != nil && out.State == effects.Failed {
			e.Error = out.Err.Error()
		}
		for i, f := range out.For {
			if i > 0 {
				e.Waiting += ", "
			}
			e.Waiting += f
		}
		o.Effects = append(o.Effects, e)
		if out.State == effects.Pending && e.Before {
			o.BlockedBy = appendMissing(o.BlockedBy, p.components(out.For))
		}
	}
	return o
}

// components keeps the names that are components.
func (p *pass) components(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return p.byName[n] == nil })
}

func appendMissing(to, more []string) []string {
	for _, m := range more {
		if !slices.Contains(to, m) {
			to = append(slices.Clone(to), m)
		}
	}
	return to
}

func previous(cr *v1alpha1.OnecloudCluster, name string) *v1alpha1.ComponentStatus {
	for i := range cr.Status.Components {
		if cr.Status.Components[i].Name == name {
			return &cr.Status.Components[i]
		}
	}
	return nil
}

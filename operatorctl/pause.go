// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/status"
)

// paused reads the annotation of a cloud: "true" is all of it, else it names components, by their names or by their blocks in the spec,
// between commas. unknown are names that are neither.
func paused(annotation string, catalog []component.Component) (all bool, left map[string]bool, unknown []string) {
	switch strings.TrimSpace(annotation) {
	case "true":
		return true, nil, nil
	case "", "false":
		return false, nil, nil
	}
	left = map[string]bool{}
	for name := range strings.FieldsFuncSeq(annotation, func(r rune) bool { return r == ',' || r == ' ' }) {
		found := false
		for _, c := range catalog {
			if c.Name == name || c.SpecKey == name {
				left[c.Name], found = true, true
			}
		}
		if !found {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return false, left, unknown
}

// paused leaves the cloud as it is; its status goes on telling how it is.
func (p *pass) paused(ctx context.Context) (ctrl.Result, error) {
	var err error
	if p.live, err = p.r.list(ctx, p.cr); err != nil {
		return ctrl.Result{}, err
	}
	before := p.cr.DeepCopy()
	s := &p.cr.Status
	var due time.Time
	for i, c := range s.Components {
		for key, o := range p.live.objects {
			if key.Name != p.cr.Name+"-"+c.Name {
				continue
			}
			if w := status.WorkloadOf(o, p.seen()); w != nil {
				s.Components[i] = status.WhilePaused(c, w, p.now)
				if due.IsZero() || !w.Due.IsZero() && w.Due.Before(due) {
					due = w.Due
				}
			}
		}
	}
	if len(s.Components) > 0 {
		s.Conditions = status.Conditions(s.Conditions, s.Components, p.cr.Generation, p.now)
	}
	s.Conditions = status.Nodes(s.Conditions, p.live.nodes, p.live.pods, p.cr.Generation, p.now)
	s.Conditions = status.Paused(s.Conditions, p.cr.Generation, p.now)
	s.ObservedGeneration = p.cr.Generation
	var next ctrl.Result
	if !due.IsZero() {
		next.RequeueAfter = max(due.Sub(p.r.now()), soon)
	}
	return next, p.publish(ctx, before)
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"yunion.io/x/ocadm/operatorctl/component"
)

// during is what the cloud is to be while an operation moves it: each component whose wave is not reached is as it was in the release From. It is
// pure.
func (d *Desired) during(s State, scheme *runtime.Scheme) (*Desired, error) {
	if s.Releases.rollout == nil {
		return d, nil
	}
	out := *d
	if s.Releases.rollout.Hold {
		out.defaultsDue = false
	}
	out.Components = nil
	held := map[string]bool{}
	h := holding{scheme: scheme}
	for _, c := range d.Components {
		now, err := s.Releases.rollout.hold(s, d, c, h)
		if err != nil {
			return nil, err
		}
		held[c.Name] = now != c
		out.Components = append(out.Components, s.Releases.rollout.stop(now))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Releases.rollout.released)) {
		if name == "" || d.component(name) != nil {
			continue
		}
		gone := &target{Resolved: component.Resolved{Component: component.Component{Name: name}}, foreign: true} // this release has it no longer
		now, err := s.Releases.rollout.hold(s, d, gone, h)
		if err != nil {
			return nil, err
		}
		if now != gone {
			out.Components = append(out.Components, now)
		}
	}
	dropped := map[string]bool{}
	out.Effects = nil
	for _, e := range d.Effects {
		if dropped[e.Key] = held[e.Component] && s.Cloud.Status.Effects[e.Key] != e.Hash; !dropped[e.Key] {
			out.Effects = append(out.Effects, e)
		}
	}
	unfollow(out.Effects, dropped)
	return &out, nil
}

// hold returns the component as it was in the release From, or c itself if its wave is reached or nothing of it differs.
func (r *rollout) hold(s State, d *Desired, c *target, h holding) (*target, error) {
	why := r.waits(c.Name)
	if why == "" || c.err != nil {
		return c, nil //nolint:nilerr // the component reports it
	}
	out := *c
	out.objects, out.wants, out.foreign = []piece{}, nil, true
	for _, o := range r.released[c.Name] {
		p, err := h.piece(o)
		if err != nil {
			return nil, err
		}
		out.objects = append(out.objects, *p)
	}
	out.showImage()
	var err error
	if out.wants, err = wantsOf(out.objects, absent(s, d, c)); err != nil {
		return nil, err
	}
	if c.Enabled == (len(out.wants) > 0) && sameWants(c.wants, out.wants) {
		return c, nil
	}
	out.held = why
	if out.Enabled = len(out.wants) > 0; !out.Enabled {
		out.DisabledReason = why
	}
	return &out, nil
}

// waits is what a component waits for, "" if its wave is reached.
func (r *rollout) waits(name string) string {
	for i, w := range r.Waves {
		if slices.Contains(w.Components, name) {
			if i < r.Reached {
				return ""
			}
			return fmt.Sprintf("waits for wave %d of operation %s", i+1, r.operation)
		}
	}
	if r.Reached < len(r.Waves) { // what no wave names goes with the last
		return fmt.Sprintf("waits for wave %d of operation %s", len(r.Waves), r.operation)
	}
	return ""
}

// stop returns the component without pods if it is to be stopped, else c itself.
func (r *rollout) stop(c *target) *target {
	if !slices.Contains(r.Stopped, c.Name) {
		return c
	}
	out := *c
	out.wants = slices.Clone(c.wants)
	for i := range out.wants {
		out.wants[i].stopped = out.wants[i].role != roleBase
	}
	out.held = "stopped by operation " + r.operation + ", which replaces its database"
	return &out
}

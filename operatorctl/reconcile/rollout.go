// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/release"
)

// rollout is an operation that moves a cloud from one release to another: docs/decisions/0029-operations.md.
type rollout struct {
	v1alpha1.Rollout
	operation string
	reverting bool
	// released holds the objects of the release From, by component.
	released map[string][]release.Object
	// repeated is true if the release Of was repeated.
	repeated bool
	// forgotten holds the effects that the databases lose when earlier backups replace them, with the hash that was recorded at that time, "" if there
	// was none.
	forgotten map[string]string
}

// rollout returns the running operation of a cloud, and the last one if it failed; nil if there is none.
func (r reader) rollout(ctx context.Context, cr *v1alpha1.OnecloudCluster) (running, failed *v1alpha1.OnecloudOperation, err error) {
	if !r.operations {
		return nil, nil, nil
	}
	var list v1alpha1.OnecloudOperationList
	if err := r.client.List(ctx, &list, client.InNamespace(cr.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing operations: %w", err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Spec.Cloud == cr.Name && o.Status.Phase.Active() && o.Status.Rollout != nil {
			running = o
		}
	}
	return running, lastFailed(cr.Name, list.Items), nil
}

// lastFailed returns the last update or rollback that decided whether it can move a cloud, if it did not move it; otherwise nil. One that was
// cancelled before it changed anything decides nothing. It is pure.
func lastFailed(cloud string, all []v1alpha1.OnecloudOperation) (failed *v1alpha1.OnecloudOperation) {
	var last *v1alpha1.OnecloudOperation
	for i := range all {
		o := &all[i]
		if o.Spec.Cloud != cloud || o.Spec.Action != v1alpha1.ActionUpdate && o.Spec.Action != v1alpha1.ActionRollback {
			continue
		}
		decided := o.Status.Rollout != nil || o.Status.Phase.Final() && o.Status.Phase != v1alpha1.OperationCancelled
		if decided && (last == nil || later(o, last)) {
			last = o
		}
	}
	if last != nil && (last.Status.Phase == v1alpha1.OperationFailed || last.Status.Phase == v1alpha1.OperationReverted) {
		return last
	}
	return nil
}

// later reports whether an operation ran after another one. They run one at a time. Times are in whole seconds and of different clocks, but an earlier
// operator did not set Turn.
func later(a, b *v1alpha1.OnecloudOperation) bool {
	if a.Status.Turn > 0 && b.Status.Turn > 0 {
		return a.Status.Turn > b.Status.Turn
	}
	return cmp.Or(a.Status.Start.Compare(b.Status.Start.Time), cmp.Compare(a.Status.Turn, b.Status.Turn), a.Status.End.Compare(b.Status.End.Time)) > 0
}

// heed makes the State follow the running operation, and reports whether this build may render another release now. changed is true if a user asked
// for another version, or for what this build renders: only an operation applies that.
func (s *State) heed(m *cloud, running *v1alpha1.OnecloudOperation, changed bool) (moved bool, err error) {
	s.Releases.asked = false
	if wants := s.Cloud.Spec.Version; changed && wants != s.Releases.current.Version {
		s.Releases.waiting, s.Cloud.Spec.Version = wants, s.Releases.current.Version
	}
	if running == nil {
		return false, nil
	}
	r := &rollout{Rollout: *running.Status.Rollout, operation: running.Name, reverting: running.Status.Phase == v1alpha1.OperationReverting ||
		slices.ContainsFunc(running.Status.Steps, func(p v1alpha1.OperationStep) bool { return p.Revert })}
	if r.From == 0 && r.Hold { // the operation learns the revision from the status
		r.From = s.Releases.current.Revision
	}
	secret := s.Releases.kept[r.From]
	if secret == nil {
		return false, fmt.Errorf("operation %s: release %d no longer exists", r.operation, r.From)
	}
	r.released, err = m.memos.from.get(string(secret.UID)+"/"+secret.ResourceVersion, func() (map[string][]release.Object, error) { return objectsOf(secret) })
	if err != nil {
		return false, err
	}
	for revision, kept := range s.Releases.kept {
		if revision <= r.From || r.Of == 0 {
			continue
		}
		summary, err := release.DecodeSummary(kept)
		if err != nil {
			return false, err
		}
		r.repeated = r.repeated || summary.Of == r.Of
	}
	if r.forgotten, err = r.forget(s.Releases.kept, s.Releases.current); err != nil {
		return false, err
	}
	if d := running.Status.Databases; d != nil {
		for _, name := range d.Removed {
			if r.forgotten == nil {
				r.forgotten = map[string]string{}
			}
			r.forgotten[effects.DatabaseKey(name)] = ""
		}
	}
	s.Releases.rollout = r
	if r.Hold || r.Of != 0 || s.Releases.current.Revision != r.From {
		return false, nil
	}
	s.Releases.asked = true // once, for the next release
	// A step of the update wrote its version to the spec.
	update := ptr.Deref(running.Spec.Update, v1alpha1.UpdateParameters{})
	s.Releases.waiting, s.Cloud.Spec.Version = "", cmp.Or(update.Version, s.Releases.current.Version)
	return true, nil
}

// forget returns the effects in which the release in force differs from the one whose databases are restored, with their hashes there, while services
// are stopped for that. An account that only the new release needs is gone then; if it stayed recorded, the next update would not create it.
func (r *rollout) forget(kept map[int]*corev1.Secret, now *release.Release) (map[string]string, error) {
	if len(r.Stopped) == 0 {
		return nil, nil
	}
	back := r.From
	if !r.reverting && r.Of != 0 {
		back = r.Of
	}
	if kept[back] == nil {
		return nil, fmt.Errorf("operation %s: release %d no longer exists", r.operation, back)
	}
	before, err := release.Decode(kept[back])
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for key, hash := range now.Effects {
		if before.Effects[key] != hash && !effects.OnServer(key) {
			out[key] = before.Effects[key]
		}
	}
	return out, nil
}

func (r *rollout) phase() v1alpha1.Phase {
	if r.reverting || r.Of != 0 {
		return v1alpha1.PhaseRollingBack
	}
	return v1alpha1.PhaseUpgrading
}

func (r *rollout) seen() *v1alpha1.RolloutStatus {
	seen := &v1alpha1.RolloutStatus{Operation: r.operation, Hold: r.Hold, Steer: r.Steer, Reached: r.Reached, Stopped: r.Stopped}
	if r.repeated {
		seen.Of = r.Of
	}
	return seen
}

// during returns the desired state while an operation moves a cloud: components whose wave is not reached stay as in the release From. It is pure.
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
		gone := &target{Resolved: component.Resolved{Component: component.Component{Name: name}}, foreign: true} // this release no longer has it
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

// hold returns the component as in the release From, or c itself if its wave is reached or nothing differs.
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

// waits describes what a component waits for, "" if its wave is reached.
func (r *rollout) waits(name string) string {
	for i, w := range r.Waves {
		if slices.Contains(w.Components, name) {
			if i < r.Reached {
				return ""
			}
			return fmt.Sprintf("waiting for wave %d of operation %s", i+1, r.operation)
		}
	}
	if r.Reached < len(r.Waves) { // components in no wave go with the last
		return fmt.Sprintf("waiting for wave %d of operation %s", len(r.Waves), r.operation)
	}
	return ""
}

// stop returns the component without pods if it must be stopped, else c itself.
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

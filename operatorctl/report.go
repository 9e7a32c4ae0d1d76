// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/status"
)

// report writes what the pass saw into status, if it differs from what is there, and tells transitions as events.
func (p *pass) report(ctx context.Context) error {
	before := p.cr.DeepCopy()
	s := &p.cr.Status
	s.Effects = p.recorded()
	if before.Status.Certificates.Message != p.certs.told.Message && p.certs.told.Message != "" {
		p.event("Certificates", corev1.EventTypeNormal, "Certificates", "%s", p.certs.told.Message)
	}
	s.Certificates = p.certs.told
	var components []v1alpha1.ComponentStatus // what was there is needed until the last one is judged
	for _, name := range p.r.names {
		c := p.byName[name]
		cs := status.Component(p.observed(c))
		cs.Message = p.redact(cs.Message)
		components = append(components, cs)
		if c.StatusKey != "" {
			if legacy := s.Legacy.Workload(c.StatusKey); legacy != nil {
				*legacy = status.Legacy(c.Resolved, cs)
			}
		}
	}
	s.Components = components
	s.ObservedGeneration = p.cr.Generation
	s.Conditions = status.Conditions(s.Conditions, s.Components, p.cr.Generation, p.now)
	s.Conditions = status.Nodes(s.Conditions, p.live.nodes, p.live.pods, p.cr.Generation, p.now)
	p.ignored()
	s.Fixed = admission.Fixed(&p.cr.Spec)
	s.Version = status.Version(s.Version, p.cluster.Version, s.Components)
	s.Phase = status.Phase(s.Components, s.Version, p.cluster.Version, false)
	if p.auditDue() {
		p.m.nextAudit = p.now.Add(jitter(p.r.options.Audit, p.cr.Name))
	}
	p.measure()
	return p.publish(ctx, before)
}

// publish writes the status, and tells its transitions once it is written: a write that failed is made again, an event is not.
func (p *pass) publish(ctx context.Context, before *v1alpha1.OnecloudCluster) error {
	if err := p.patchStatus(ctx, before); err != nil {
		return err
	}
	p.tell(before)
	p.tellNodes(before)
	return nil
}

// tellNodes makes an event of each node of the cloud that was lost, came back, or was deleted since the last pass. What an earlier operator
// has told is not told again.
func (p *pass) tellNodes(before *v1alpha1.OnecloudCluster) {
	if p.live.nodes == nil {
		return
	}
	lost := status.Lost(p.live.nodes, p.live.pods)
	was, first := p.m.lost, p.m.lost == nil
	p.m.lost = lost
	if first && meta.IsStatusConditionFalse(before.Status.Conditions, v1alpha1.ConditionNodesReady) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		if _, known := was[name]; !known {
			p.event(subject("node/"+name), corev1.EventTypeWarning, status.ReasonNodesNotReady, "node %s is not Ready", status.NotReady(name, lost[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, still := lost[name]; !still {
			p.event(subject("node/"+name), corev1.EventTypeNormal, status.ReasonNodesReady, "node %s is Ready again, or gone", name)
		}
	}
}

// measure shows in the metrics what this pass did and left undone.
func (p *pass) measure() {
	m := p.r.metrics
	m.changes(p.changes)
	m.due(m.renewal, p.cr, p.certs.renewAt)
	m.ends(p.cr, p.certs.told)
	if p.r.options.Audit > 0 {
		m.due(m.audit, p.cr, p.m.nextAudit)
	}
	var outcomes []effects.Outcome
	for _, c := range p.parts {
		outcomes = append(outcomes, c.outcomes...)
	}
	m.openEffects(p.cr, outcomes)
}

// recorded are the hashes of the effects that are done. What is not planned now (a component that is off) keeps its record.
func (p *pass) recorded() map[string]string {
	out := maps.Clone(p.cr.Status.Effects)
	if out == nil {
		out = map[string]string{}
	}
	for _, c := range p.parts {
		for _, o := range c.outcomes {
			if o.State == effects.Done {
				out[o.Effect.Key] = o.Effect.Hash
			}
		}
	}
	return out
}

// patchStatus sends only what differs; nothing if nothing does.
func (p *pass) patchStatus(ctx context.Context, before *v1alpha1.OnecloudCluster) error {
	p.r.metrics.cloud(p.cr)
	if equality.Semantic.DeepEqual(before.Status, p.cr.Status) {
		return nil
	}
	if err := p.r.client.Status().Patch(ctx, p.cr, client.MergeFrom(before), client.FieldOwner(engine.FieldManager)); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil // deleted meanwhile
		}
		return fmt.Errorf("writing status: %w", err)
	}
	p.wrote(p.cr)
	return nil
}

// tell makes an event of each transition of a component and of the cloud, and of another cause why a component is Degraded. On the way to
// Available there are several states; leaving where a component was is told, and arriving, the steps between are not.
func (p *pass) tell(before *v1alpha1.OnecloudCluster) {
	for _, now := range p.cr.Status.Components {
		old := previous(before, now.Name)
		var was v1alpha1.State
		if old != nil {
			was = old.State
		}
		switch now.State {
		case v1alpha1.Degraded:
			if was != now.State || old.Reason != now.Reason || now.Reason == status.ReasonInvalidOption && old.Message != now.Message {
				p.event(subject(now.Name), corev1.EventTypeWarning, now.Reason, "%s is Degraded: %s", now.Name, now.Message)
			}
		case v1alpha1.Available:
			if was != now.State {
				p.event(subject(now.Name), corev1.EventTypeNormal, string(now.State), "%s is Available", now.Name)
			}
		case v1alpha1.Idle:
			if was != now.State {
				p.event(subject(now.Name), corev1.EventTypeNormal, string(now.State), "%s is Idle: %s", now.Name, now.Message)
			}
		case v1alpha1.Disabled:
			if was != now.State && old != nil {
				p.event(subject(now.Name), corev1.EventTypeNormal, string(now.State), "%s is Disabled: %s", now.Name, now.Message)
			}
		default:
			if was.Settled() || was == v1alpha1.Degraded {
				p.event(subject(now.Name), corev1.EventTypeNormal, now.Reason, "%s is %s: %s", now.Name, now.State, now.Message)
			}
		}
	}
	if before.Status.Phase != p.cr.Status.Phase {
		p.event(wholeCloud, corev1.EventTypeNormal, string(p.cr.Status.Phase), "the cloud is %s", p.cr.Status.Phase)
	}
}

// redact takes the secrets of the cloud out of what errors and logs of services say.
func (p *pass) redact(s string) string {
	if s == "" {
		return s
	}
	const short = 6 // shorter ones would blacken ordinary words
	for _, secret := range p.creds {
		if len(secret) < short {
			continue
		}
		s = strings.ReplaceAll(s, secret, "***")
		// A long message was cut, perhaps in the middle of the secret.
		for n := len(secret) - 1; n >= short && strings.Contains(s, "…"); n-- {
			s = strings.ReplaceAll(s, secret[:n]+"…", "***…")
		}
	}
	return s
}

// subject is what an event is about: a component, an object.
type subject string

// wholeCloud is the subject of events that are about no component alone.
const wholeCloud subject = "Reconcile"

// event tells something. The recorder counts events of one reason and action as one, whatever they say: what an event is about has to be
// its action.
func (p *pass) event(about subject, kind, reason, format string, args ...any) {
	p.r.events.Eventf(p.cr, nil, kind, reason, string(about), format, args...)
}

// reportInvalid tells that the spec cannot be carried out.
func (p *pass) reportInvalid(ctx context.Context, invalid *invalidSpec) error {
	before := p.cr.DeepCopy()
	s := &p.cr.Status
	s.ObservedGeneration = p.cr.Generation
	s.Conditions = status.Invalid(s.Conditions, invalid.Error(), p.cr.Generation, p.now)
	s.Phase = v1alpha1.PhaseFailed
	return p.warn(ctx, before, func(was, is metav1.Condition) bool { return was.Reason != is.Reason || was.Message != is.Message })
}

// reportBlocked tells what keeps the whole cloud from being reconciled. The pass is tried again.
func (p *pass) reportBlocked(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	before := p.cr.DeepCopy()
	p.cr.Status.Conditions = status.Blocked(p.cr.Status.Conditions, p.redact(err.Error()), p.cr.Generation, p.now)
	// The words of an error may differ from one try to the next.
	return p.warn(ctx, before, func(was, is metav1.Condition) bool { return was.Reason != is.Reason })
}

// warn writes the status, and makes an event of a Degraded cloud once it is written, if its condition is another than before.
func (p *pass) warn(ctx context.Context, before *v1alpha1.OnecloudCluster, other func(was, is metav1.Condition) bool) error {
	if err := p.patchStatus(ctx, before); err != nil {
		return err
	}
	is := meta.FindStatusCondition(p.cr.Status.Conditions, v1alpha1.ConditionDegraded)
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionDegraded)
	if is != nil && (was == nil || other(*was, *is)) {
		p.event(wholeCloud, corev1.EventTypeWarning, is.Reason, "%s", is.Message)
	}
	return nil
}

// reportDeleting tells what is still there of a cloud that is being deleted, and what went since.
func (p *pass) reportDeleting(ctx context.Context, left map[string][]client.Object, message string) error {
	before := p.cr.DeepCopy()
	p.cr.Status.Phase = v1alpha1.PhaseDeleting
	p.cr.Status.ObservedGeneration = p.cr.Generation
	p.cr.Status.Conditions = status.Deleting(p.cr.Status.Conditions, message, p.cr.Generation, p.now)
	if err := p.patchStatus(ctx, before); err != nil {
		return err
	}
	if before.Status.Phase != p.cr.Status.Phase {
		p.event(wholeCloud, corev1.EventTypeNormal, string(p.cr.Status.Phase), "deleting the cloud, last component first")
	}
	for _, gone := range p.m.leaving {
		if _, still := left[gone]; !still {
			p.event(subject(gone), corev1.EventTypeNormal, "Deleted", "%s is gone", gone)
		}
	}
	p.m.leaving = slices.Sorted(maps.Keys(left))
	return nil
}

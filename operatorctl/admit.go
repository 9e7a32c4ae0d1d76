// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/status"
)

// judgement is what is to be said of a spec; it holds as long as the spec does.
type judgement struct {
	generation int64
	// whole is what is wrong with the cloud as a whole, blocks with the block of a component.
	whole  error
	blocks map[string]string
	// ignored are fields without effect.
	ignored []resolve.Notice
}

// admit judges the spec as the API server should have done: the CRD of this cluster may be an older one. What is wrong with the block of
// a component is that component's trouble only.
func (p *pass) admit(f resolve.Facts) error {
	if p.m.judged == nil || p.m.judged.generation != p.cr.Generation {
		violations, err := admission.Check(&p.cr.Spec, admission.Before(p.cr.Status.Fixed))
		if err != nil {
			return fmt.Errorf("judging the spec: %w", err)
		}
		j := &judgement{generation: p.cr.Generation, blocks: map[string]string{}}
		var whole []error
		for _, v := range violations {
			switch {
			case p.cr.Spec.Component(v.Block) == nil:
				whole = append(whole, v)
			case j.blocks[v.Block] == "":
				j.blocks[v.Block] = v.Error()
			}
		}
		j.whole = errors.Join(whole...)
		if j.ignored, err = resolve.Notices(p.cr, f); err != nil {
			return fmt.Errorf("judging the spec: %w", err)
		}
		p.m.judged = j
	}
	if p.m.judged.whole != nil {
		return &invalidSpec{p.m.judged.whole}
	}
	return nil
}

// blame puts what is wrong with blocks to their components.
func (p *pass) blame() {
	for _, name := range slices.Collect(maps.Keys(p.cluster.Components)) {
		r := p.cluster.Components[name]
		block, _, _ := strings.Cut(r.SpecKey, ".")
		if block == "" {
			block = name
		}
		if why := p.m.judged.blocks[block]; why != "" && r.Enabled && r.Problem == "" {
			r.Problem = why
			p.cluster.Components[name] = r
		}
	}
}

// ignored tells in a condition, and once as an event, which fields of the spec have no effect.
func (p *pass) ignored() {
	reason, list := "", []string(nil)
	if p.m.judged != nil {
		for _, n := range p.m.judged.ignored {
			list = append(list, n.String())
			if n.Unknown {
				reason = status.ReasonUnknownFields
			} else if reason == "" {
				reason = status.ReasonWithoutEffect
			}
		}
	}
	_, _, unknown := paused(p.cr.Annotations[v1alpha1.AnnotationPaused], p.r.catalog)
	for _, name := range unknown {
		reason = status.ReasonUnknownFields
		list = append(list, fmt.Sprintf("annotation %s: there is no component %q", v1alpha1.AnnotationPaused, name))
	}
	s := &p.cr.Status
	before := status.Message(s.Conditions, v1alpha1.ConditionIgnored)
	s.Conditions = status.Ignored(s.Conditions, reason, list, p.cr.Generation, p.now)
	if now := status.Message(s.Conditions, v1alpha1.ConditionIgnored); now != "" && now != before {
		p.event(wholeCloud, corev1.EventTypeWarning, reason, "%s", now)
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// invalidSpec is a spec that cannot be carried out until a user edits it.
type invalidSpec struct{ err error }

func (e *invalidSpec) Error() string { return e.err.Error() }
func (e *invalidSpec) Unwrap() error { return e.err }

// judgement is the verdict on a spec.
type judgement struct {
	// whole is what is wrong with the cloud as a whole, blocks with the block of a component.
	whole  error
	blocks map[string]string
	// ignored are fields without effect.
	ignored []resolve.Notice
}

// judge checks the spec as the API server should have done, unless it has: the CRD of this cluster may be an older one. What is wrong with
// the block of a component concerns that component only.
func judge(ctx context.Context, cr *v1alpha1.OnecloudCluster, f resolve.Facts, checked bool) (*judgement, error) {
	var violations []admission.Violation
	var err error
	if !checked {
		violations, err = admission.Check(ctx, &cr.Spec, admission.Before(cr.Status.Fixed))
	}
	if err != nil {
		return nil, err
	}
	j := &judgement{blocks: map[string]string{}}
	var whole []error
	for _, v := range violations {
		switch {
		case cr.Spec.Component(v.Block) == nil:
			whole = append(whole, v)
		case j.blocks[v.Block] == "":
			j.blocks[v.Block] = v.Error()
		}
	}
	j.whole = errors.Join(whole...)
	j.ignored, err = resolve.Notices(cr, f)
	return j, err
}

// blame gives components what is wrong with their blocks.
func (j *judgement) blame(components map[string]component.Resolved) {
	for _, name := range slices.Collect(maps.Keys(components)) {
		c := components[name]
		block, _, _ := strings.Cut(cmp.Or(c.SpecKey, name), ".")
		if why := j.blocks[block]; why != "" && c.Enabled && c.Problem == "" {
			c.Problem = why
			components[name] = c
		}
	}
}

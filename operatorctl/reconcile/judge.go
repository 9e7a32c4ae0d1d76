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

// invalidSpec is the error of a spec that is unusable until a user edits it.
type invalidSpec struct{ err error }

func (e *invalidSpec) Error() string { return e.err.Error() }
func (e *invalidSpec) Unwrap() error { return e.err }

// judgement is the result of checking a spec.
type judgement struct {
	// whole is the error of the cloud as a whole, blocks those of components' blocks.
	whole  error
	blocks map[string]string
	// ignored lists the fields without effect.
	ignored []resolve.Notice
}

// judge validates the spec unless the API server already has: the cluster's CRD may be older. An error in a component's block only concerns that component.
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

// blame assigns the errors in blocks to their components.
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

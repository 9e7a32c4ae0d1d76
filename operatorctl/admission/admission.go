// SPDX-License-Identifier: Apache-2.0

// Package admission says what a spec may hold. Most of it stands in the CRD, as schema and as CEL rules, and the API server refuses what
// breaks it; the operator asks the same again of what it reads, because the CRD in a cluster may be an older one, or somebody else's.
// The CEL rules of the CRD are generated from the table here (scripts/generate.sh), the schema is read from the CRD: nothing is said
// twice. A test compares the verdicts of both sides. It is pure.
package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// Spec is what is judged.
type Spec = v1alpha1.OnecloudClusterSpec

// Rule is one thing a spec must keep to. It holds for the spec as a whole.
type Rule struct {
	// Field is the path below spec that breaks it, for messages: "mysql.host".
	Field string
	// CEL is the rule as the API server checks it; oldSelf makes it one about changes.
	CEL string
	// Message says what is wrong and what to do instead.
	Message string
	// Broken tells the same of s; old is what it was before, nil if that is not known or it is new.
	Broken func(s, old *Spec) bool
}

// Violation is what is wrong with a spec. Block is the key below spec that it lies in.
type Violation struct{ Block, Field, Message string }

func (v Violation) Error() string { return "spec." + v.Field + ": " + v.Message }

// Check judges a spec by the schema of the CRD and by the rules. old is what it was before, nil if that is not known.
func Check(s, old *Spec) ([]Violation, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, fmt.Errorf("reading spec: %w", err)
	}
	schema, err := specSchema()
	if err != nil {
		return nil, err
	}
	out := schema.check("", tree)
	for _, r := range Rules() {
		if r.Broken(s, old) {
			out = append(out, Violation{Field: r.Field, Message: r.Message})
		}
	}
	for i := range out {
		out[i].Block, _, _ = strings.Cut(out[i].Field, ".")
		out[i].Block, _, _ = strings.Cut(out[i].Block, "[")
	}
	slices.SortStableFunc(out, func(a, b Violation) int { return strings.Compare(a.Field, b.Field) })
	return out, nil
}

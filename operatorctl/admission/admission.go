// SPDX-License-Identifier: Apache-2.0

// Package admission says what a spec may hold. Most of it stands in the CRD, as schema and as CEL rules, and the API server refuses what
// breaks it; the operator asks the same again of what it reads, because the CRD in a cluster may be an older one, or somebody else's.
// The CEL rules of the CRD are generated from the table here (scripts/generate.sh), the schema is read from the CRD: nothing is said
// twice. A test compares the verdicts of both sides. It is pure.
package admission

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// Violation is what is wrong with a spec. Block is the key below spec, or below spec.components, that it lies in.
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
	for i, v := range out {
		parts := strings.SplitN(v.Field, ".", 3)
		if out[i].Block, _, _ = strings.Cut(parts[0], "["); parts[0] == "components" && len(parts) > 1 {
			out[i].Block = parts[1]
		}
	}
	slices.SortStableFunc(out, func(a, b Violation) int { return strings.Compare(a.Field, b.Field) })
	return out, nil
}

// Fixed are the values of a spec that must not change any more, by field, for the status of the cloud: the operator has no other way to
// know what a spec was before.
func Fixed(s *Spec) map[string]string {
	out := map[string]string{"region": s.Region, "zone": s.Zone, "mysql.host": s.MySQL.Host}
	if s.MySQL.Port != 0 {
		out["mysql.port"] = strconv.Itoa(int(s.MySQL.Port))
	}
	if s.Clickhouse.Host != "" {
		out["clickhouse.host"], out["clickhouse.port"] = s.Clickhouse.Host, strconv.Itoa(int(clickHousePort(s)))
	}
	if s.Etcd.Size != 0 && !off(s.Etcd.Disable) {
		out["etcd.size"] = strconv.Itoa(int(s.Etcd.Size))
	}
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// Before makes of Fixed the spec that it was made of, as far as it matters for Check; nil of nothing.
func Before(fixed map[string]string) *Spec {
	if len(fixed) == 0 {
		return nil
	}
	number := func(field string) int32 {
		n, err := strconv.ParseInt(fixed[field], 10, 32)
		if err != nil {
			return 0
		}
		return int32(n)
	}
	s := &Spec{Region: fixed["region"], Zone: fixed["zone"]}
	s.MySQL.Host, s.MySQL.Port, s.Etcd.Size = fixed["mysql.host"], number("mysql.port"), number("etcd.size")
	s.Clickhouse.Host, s.Clickhouse.Port = fixed["clickhouse.host"], number("clickhouse.port")
	return s
}

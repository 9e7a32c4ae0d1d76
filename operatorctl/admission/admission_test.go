// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/templates"
	cloudcases "yunion.io/x/ocadm/test/admission"
	"yunion.io/x/ocadm/test/require"
)

// read returns a spec as the operator reads it; the error is that of an unreadable one.
func read(t testing.TB, m map[string]any) (*admission.Spec, error) {
	t.Helper()
	b, err := json.Marshal(m)
	require.NoError(t, err)
	s := &admission.Spec{}
	return s, json.Unmarshal(b, s)
}

// The API server checks the same cases in test/integration.
func TestCases(t *testing.T) {
	all, err := cloudcases.Cases()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			var old *admission.Spec
			if c.Was != nil {
				if old, err = read(t, c.Spec(c.Was)); err != nil {
					t.Fatal(err)
				}
				old = admission.Before(admission.Fixed(old)) // all that the operator knows about it
			}
			judge := func(part map[string]any) string {
				s, err := read(t, c.Spec(part))
				if err != nil {
					return err.Error()
				}
				violations, err := admission.Check(t.Context(), s, old)
				require.NoError(t, err)
				var said []string
				for _, v := range violations {
					seen[v.Message] = true
					said = append(said, v.Error())
				}
				return strings.Join(said, "; ")
			}
			if said := judge(c.Bad); !strings.Contains(said, c.Want) && !strings.Contains(said, "quantities must match") { // such a quantity cannot even be read
				t.Errorf("the bad one: %q, want %q", said, c.Want)
			}
			if said := judge(c.Good); said != "" {
				t.Errorf("the good one: %q", said)
			}
		})
	}
	for _, r := range rules(t) {
		if !seen[r.Message] {
			t.Errorf("no case breaks the rule of %s: %s", r.FieldPath, r.Message)
		}
	}
}

// rules returns the rules of the built-in CRD.
func rules(t *testing.T) apiextensionsv1.ValidationRules {
	t.Helper()
	data, err := fs.ReadFile(templates.Files(), admission.Definition)
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(data, &crd))
	all := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].XValidations
	if len(all) < 30 {
		t.Fatalf("the CRD has %d rules", len(all))
	}
	return all
}

// An error is assigned to the block that contains it, and no message quotes a value.
func TestBlockAndSecrets(t *testing.T) {
	s, err := read(t, map[string]any{
		"mysql":  map[string]any{"host": "h", "password": "geheim\n"},
		"glance": map[string]any{"replicas": -1}, "components": map[string]any{"new": map[string]any{"replicas": -1}},
	})
	require.NoError(t, err)
	violations, err := admission.Check(t.Context(), s, nil)
	require.NoError(t, err)
	var blocks []string
	for _, v := range violations {
		if blocks = append(blocks, v.Block); strings.Contains(v.Error(), "geheim") {
			t.Errorf("%v", v)
		}
	}
	if !slices.Equal(blocks, []string{"new", "glance", "mysql"}) {
		t.Errorf("%q: %v", blocks, violations)
	}
	admission.Release()
}

func BenchmarkCompileAndCheck(b *testing.B) {
	s, err := read(b, cloudcases.Base())
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		admission.Release()
		if _, err := admission.Check(b.Context(), s, nil); err != nil {
			b.Fatal(err)
		}
	}
}

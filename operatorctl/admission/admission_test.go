// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/templates"
	cloudcases "yunion.io/x/ocadm/test/admission"
)

func cases(t testing.TB) []cloudcases.Case {
	t.Helper()
	all, err := cloudcases.Cases()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// server judges as an API server does, by the CRD.
type server struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

func newServer(t testing.TB) server {
	t.Helper()
	data, err := templates.ReadDir("operator/crds")
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &v1); err != nil {
		t.Fatal(err)
	}
	spec := v1.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&spec, props, nil); err != nil {
		t.Fatal(err)
	}
	var s server
	if s.structural, err = schema.NewStructural(props); err != nil {
		t.Fatal(err)
	}
	if s.schema, _, err = validation.NewSchemaValidator(props); err != nil {
		t.Fatal(err)
	}
	s.cel = cel.NewValidator(s.structural, false, celconfig.PerCallLimit)
	return s
}

// judge returns the messages of the rules that are broken, and whether the schema is.
func (s server) judge(t testing.TB, spec, old map[string]any) (rules []string, form string) {
	t.Helper()
	if errs := validation.ValidateCustomResource(nil, spec, s.schema); len(errs) > 0 {
		form = errs.ToAggregate().Error()
	}
	var before any
	if old != nil {
		before = old
	}
	errs, _ := s.cel.Validate(t.Context(), nil, s.structural, spec, before, celconfig.RuntimeCELCostBudget)
	for _, e := range errs {
		rules = append(rules, e.Detail)
	}
	slices.Sort(rules)
	return slices.Compact(rules), form
}

// operator judges as the operator does.
func operator(t testing.TB, spec, old map[string]any) (rules, form []string) {
	t.Helper()
	read := func(m map[string]any) *admission.Spec {
		if m == nil {
			return nil
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		s := &v1alpha1.OnecloudClusterSpec{}
		if err := json.Unmarshal(b, s); err != nil {
			form = append(form, err.Error()) // it cannot even be read
		}
		return s
	}
	before, now := read(old), read(spec)
	if form != nil {
		return nil, form
	}
	all, err := admission.Check(now, before)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if slices.ContainsFunc(admission.Rules(), func(r admission.Rule) bool { return r.Message == v.Message }) {
			rules = append(rules, v.Message)
		} else {
			form = append(form, v.Error())
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), form
}

func TestBothSidesOfEveryRule(t *testing.T) {
	s := newServer(t)
	seen := map[string]bool{}
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			var old map[string]any
			if c.Was != nil {
				old = c.Spec(c.Was)
			}
			rules, form := s.judge(t, c.Spec(c.Bad), old)
			if said := strings.Join(rules, "; ") + form; !strings.Contains(said, c.Want) {
				t.Errorf("the API server says %q", said)
			}
			for _, r := range rules {
				seen[r] = true
			}
			ours, ourForm := operator(t, c.Spec(c.Bad), old)
			if said := strings.Join(append(ours, ourForm...), "; "); len(said) == 0 || rules != nil && !strings.Contains(said, c.Want) {
				t.Errorf("the operator says %q", said)
			}
			agree(t, s, c.Spec(c.Bad), old)
			if rules, form := s.judge(t, c.Spec(c.Good), old); len(rules) > 0 || form != "" {
				t.Errorf("the API server refuses the good one: %q %s", rules, form)
			}
			agree(t, s, c.Spec(c.Good), old)
		})
	}
	for _, r := range admission.Rules() {
		if !seen[r.Message] {
			t.Errorf("no case breaks the rule of %s: %s", r.Field, r.Message)
		}
	}
}

// agree compares both verdicts on a spec.
func agree(t testing.TB, s server, spec, old map[string]any) {
	t.Helper()
	rules, form := s.judge(t, spec, old)
	ours, ourForm := operator(t, spec, old)
	if len(ourForm) > 0 && strings.Contains(ourForm[0], "quantities must match") {
		return // it cannot even be read; what is stored has passed the schema
	}
	if !slices.Equal(rules, ours) || (form == "" && len(rules) == 0) != (len(ourForm) == 0 && len(ours) == 0) {
		b, _ := json.Marshal(spec)
		o, _ := json.Marshal(old)
		t.Errorf("%s\nafter %s\nthe API server: %q %s\nthe operator:   %q %q", b, o, rules, form, ours, ourForm)
	}
}

// compose makes a spec of parts of the cases.
func compose(all []cloudcases.Case, r *rand.Rand) map[string]any {
	spec := cloudcases.Base()
	for range r.IntN(5) {
		c := all[r.IntN(len(all))]
		part := [](map[string]any){c.Bad, c.Good, c.Was}[r.IntN(3)]
		if len(part) > 0 {
			spec = cloudcases.Merge(spec, part)
		}
	}
	return spec
}

func TestBothSidesAgree(t *testing.T) {
	s, all := newServer(t), cases(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		agree(t, s, compose(all, r), compose(all, r))
	}
}

func FuzzBothSidesAgree(f *testing.F) {
	s, all := newServer(f), cases(f)
	f.Add(uint64(1), uint64(2), "v1", "r.example.com", "10.0.0.1", int32(3))
	f.Fuzz(func(t *testing.T, a, b uint64, version, repository, address string, n int32) {
		r := rand.New(rand.NewPCG(a, b))
		spec, old := compose(all, r), compose(all, r)
		more, err := json.Marshal(map[string]any{
			"version": version, "imageRepository": repository, "loadBalancerEndpoint": address, "certSANs": []string{address}, "customZones": []string{version, repository},
			"regionServer": map[string]any{"dnsServer": address, "dnsDomain": address}, "telegraf": map[string]any{"telegrafConfigDir": repository},
			"hostagent": map[string]any{"defaultQemuVersion": version}, "backup": map[string]any{"schedule": version},
			"keystone": map[string]any{"publicService": map[string]any{"nodePort": n}, "replicas": n % 128}, "etcd": map[string]any{"size": n % 16, "clientNodePort": n},
		})
		if err != nil {
			t.Skip(err)
		}
		extra := map[string]any{}
		if err := utiljson.Unmarshal(more, &extra); err != nil {
			t.Fatal(err)
		}
		agree(t, s, cloudcases.Merge(spec, extra), old)
	})
}

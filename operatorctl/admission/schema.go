// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/templates"
)

// schema is the part of an OpenAPI schema that limits values. Types are no matter here: what is judged has been read into Go types.
type schema struct {
	Properties           map[string]*schema `json:"properties,omitempty"`
	AdditionalProperties *schema            `json:"additionalProperties,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	Enum                 []string           `json:"enum,omitempty"`
	Pattern              string             `json:"pattern,omitempty"`
	Required             []string           `json:"required,omitempty"`
	Minimum, Maximum     *float64
	MinLength, MaxLength *int
	MaxItems             *int
	MaxProperties        *int

	expression *regexp.Regexp
}

// specSchema is that of spec in the CRD that is built in.
var specSchema = sync.OnceValues(func() (*schema, error) {
	data, err := templates.ReadDir("operator/crds")
	if err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if data, err = yaml.YAMLToJSON(data); err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	if err := json.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	if len(crd.Spec.Versions) == 0 || crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] == nil {
		return nil, fmt.Errorf("reading the CRD: it has no schema of spec")
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	return spec, spec.prepare(map[string]*regexp.Regexp{})
})

// prepare compiles the expressions, each once, and forgets what limits nothing.
func (s *schema) prepare(known map[string]*regexp.Regexp) error {
	if s.Pattern != "" {
		if known[s.Pattern] == nil {
			e, err := regexp.Compile(s.Pattern)
			if err != nil {
				return fmt.Errorf("reading the CRD: %w", err)
			}
			known[s.Pattern] = e
		}
		s.expression = known[s.Pattern]
	}
	for name, p := range s.Properties {
		if err := p.prepare(known); err != nil {
			return err
		}
		if p.free() {
			delete(s.Properties, name)
		}
	}
	for _, p := range []**schema{&s.AdditionalProperties, &s.Items} {
		if *p == nil {
			continue
		}
		if err := (*p).prepare(known); err != nil {
			return err
		}
		if (*p).free() {
			*p = nil
		}
	}
	return nil
}

func (s *schema) free() bool {
	return len(s.Properties) == 0 && s.AdditionalProperties == nil && s.Items == nil && s.Enum == nil && s.Pattern == "" && s.Required == nil &&
		s.Minimum == nil && s.Maximum == nil && s.MinLength == nil && s.MaxLength == nil && s.MaxItems == nil && s.MaxProperties == nil
}

func (s *schema) check(path string, v any) []Violation {
	var out []Violation
	bad := func(format string, args ...any) {
		out = append(out, Violation{Field: path, Message: fmt.Sprintf(format, args...)})
	}
	switch t := v.(type) {
	case map[string]any:
		out = append(out, s.object(path, t)...)
	case []any:
		if s.MaxItems != nil && len(t) > *s.MaxItems {
			bad("it has %d entries, at most %d are allowed", len(t), *s.MaxItems)
		}
		for i, item := range t {
			if s.Items != nil {
				out = append(out, s.Items.check(path+"["+strconv.Itoa(i)+"]", item)...)
			}
		}
	case string:
		n := utf8.RuneCountInString(t)
		switch {
		case s.MinLength != nil && n < *s.MinLength:
			bad("it is too short, it has to have %d characters", *s.MinLength)
		case s.MaxLength != nil && n > *s.MaxLength:
			bad("it is too long, it may have %d characters", *s.MaxLength)
		case s.Enum != nil && !contains(s.Enum, t):
			bad("%q is none of %q", t, s.Enum)
		case s.expression != nil && !s.expression.MatchString(t):
			bad("its form has to be %s", s.Pattern)
		}
	case int64, float64:
		n, err := strconv.ParseFloat(fmt.Sprint(t), 64)
		switch {
		case err != nil || math.IsNaN(n):
		case s.Minimum != nil && n < *s.Minimum:
			bad("%v is less than %v", t, *s.Minimum)
		case s.Maximum != nil && n > *s.Maximum:
			bad("%v is more than %v", t, *s.Maximum)
		}
	}
	return out
}

func (s *schema) object(path string, m map[string]any) []Violation {
	var out []Violation
	join := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	if s.MaxProperties != nil && len(m) > *s.MaxProperties {
		out = append(out, Violation{Field: path, Message: fmt.Sprintf("it has %d entries, at most %d are allowed", len(m), *s.MaxProperties)})
	}
	for _, name := range s.Required {
		if _, has := m[name]; !has {
			out = append(out, Violation{Field: join(name), Message: "it is missing"})
		}
	}
	for name, v := range m {
		p := s.Properties[name]
		if p == nil {
			p = s.AdditionalProperties
		}
		if p != nil && v != nil {
			out = append(out, p.check(join(name), v)...)
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

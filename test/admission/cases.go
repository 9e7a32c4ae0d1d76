// SPDX-License-Identifier: Apache-2.0

// Package admission holds pairs of cloud specs: one that must be refused and one that must be accepted. They serve the test of the validation rules
// in this process and the one against a real API server.
package admission

import (
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var text []byte

// Case is a pair of a bad and a good spec.
type Case struct {
	Name string `json:"name"`
	// Base is "none" if Was, Bad and Good are complete specs. Otherwise they are merged over Base().
	Base string `json:"base"`
	// Was is the previous spec, nil for a new cloud.
	Was  map[string]any `json:"was"`
	Bad  map[string]any `json:"bad"`
	Good map[string]any `json:"good"`
	// Want is part of the expected message.
	Want string `json:"want"`
}

// Cases returns all cases.
func Cases() ([]Case, error) {
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("reading cases.yaml: %w", err)
	}
	var out []Case
	if err := utiljson.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("reading cases.yaml: %w", err)
	}
	for _, c := range out {
		if c.Name == "" || c.Want == "" || c.Good == nil || c.Bad == nil {
			return nil, fmt.Errorf("reading cases.yaml: an entry is incomplete: %+v", c)
		}
	}
	return out, nil
}

// Spec returns the complete spec for one part of the case.
func (c Case) Spec(part map[string]any) map[string]any {
	if c.Base == "none" {
		return runtime.DeepCopyJSON(part)
	}
	return Merge(Base(), part)
}

// Base returns a minimal valid spec.
func Base() map[string]any {
	return map[string]any{"mysql": map[string]any{"host": "10.0.0.5", "password": "p"}}
}

// Merge returns into with from merged over it. It changes neither.
func Merge(into, from map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(into)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range from {
		a, ok1 := out[k].(map[string]any)
		b, ok2 := v.(map[string]any)
		if ok1 && ok2 {
			out[k] = Merge(a, b)
			continue
		}
		out[k] = runtime.DeepCopyJSONValue(v)
	}
	return out
}

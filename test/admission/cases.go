// SPDX-License-Identifier: Apache-2.0

// Package admission holds specs of clouds that are to be refused, each with one beside it that is to be taken: for the test of the rules
// in this process and for the one that asks a real API server.
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

// Case is a bad spec and a good one.
type Case struct {
	Name string `json:"name"`
	// Base "none" means that Was, Bad and Good are whole specs; else they are laid over one that has a database.
	Base string `json:"base"`
	// Was is the spec before, nil where the cloud is new.
	Was  map[string]any `json:"was"`
	Bad  map[string]any `json:"bad"`
	Good map[string]any `json:"good"`
	// Want is a part of the message.
	Want string `json:"want"`
}

// Cases are all of them.
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

// Spec is the spec with a part of the case.
func (c Case) Spec(part map[string]any) map[string]any {
	if c.Base == "none" {
		return runtime.DeepCopyJSON(part)
	}
	return Merge(Base(), part)
}

// Base is the least that a spec has.
func Base() map[string]any {
	return map[string]any{"mysql": map[string]any{"host": "10.0.0.5", "password": "p"}}
}

// Merge lays one spec over another; both stay as they are.
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

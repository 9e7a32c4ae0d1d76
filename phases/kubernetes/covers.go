// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"reflect"

	"sigs.k8s.io/yaml"
)

// coversYAML tells whether the document got sets everything that want sets, to the same values.
func coversYAML(got, want []byte) (bool, error) {
	var g, w map[string]any
	if err := yaml.Unmarshal(got, &g); err != nil {
		return false, fmt.Errorf("parsing YAML: %w", err)
	}
	if err := yaml.Unmarshal(want, &w); err != nil {
		return false, fmt.Errorf("parsing YAML: %w", err)
	}
	return covers(g, w), nil
}

func covers(got, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return len(w) == 0 && got == nil
		}
		for k, v := range w {
			if !covers(g[k], v) {
				return false
			}
		}
		return true
	case bool, float64:
		if got == nil {
			return reflect.ValueOf(w).IsZero() // left out because it is the zero value
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return false
		}
		for i := range w {
			if !covers(g[i], w[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(got, want)
}

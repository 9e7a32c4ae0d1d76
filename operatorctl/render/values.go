// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/component"
)

// properties are options as programs in Java read them.
func properties(all map[string]any) []byte {
	var b bytes.Buffer
	for _, key := range sorted(all) {
		fmt.Fprintf(&b, "%s=%v\n", key, all[key])
	}
	return b.Bytes()
}

// parseFile reads a composed file back.
func parseFile(c component.Component, file []byte) (map[string]any, error) {
	all := map[string]any{}
	if !c.Config.Properties {
		err := yaml.Unmarshal(file, &all)
		return all, err
	}
	for line := range strings.Lines(string(file)) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			all[key] = value
		}
	}
	return all, nil
}

// OptionValue reads an option as it stands in a ConfigMap: its text is YAML. Numbers are float64, as JSON has them.
func OptionValue(text string) (any, error) {
	var value any
	err := yaml.Unmarshal([]byte(text), &value)
	return value, err
}

// textValue is what a text in a ConfigMap means.
func textValue(text string) any {
	v, err := OptionValue(text)
	if err != nil {
		return text
	}
	return v
}

// same compares values as they are in a file: an int64 and a float64 may be the same.
func same(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err1 != nil || err2 != nil {
		return reflect.DeepEqual(a, b)
	}
	return bytes.Equal(x, y)
}

// OptionText is a value as it stands in the ConfigMap: YAML on one line where it can be.
func OptionText(value any) (string, error) {
	switch value.(type) {
	case []string, []any, map[string]any:
		b, err := json.Marshal(value)
		return string(b), err
	}
	b, err := yaml.Marshal(value)
	return strings.TrimSuffix(string(b), "\n"), err
}

// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/component"
)

// properties formats options as a Java properties file.
func properties(all map[string]any) []byte {
	var b bytes.Buffer
	for _, key := range sorted(all) {
		fmt.Fprintf(&b, "%s=%v\n", key, all[key])
	}
	return b.Bytes()
}

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

// YAML reads a bare string as a string if it does not begin with a digit, as numbers and dates do, has no special characters, and is not a keyword of
// YAML 1.1.
var (
	bareString = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/_.-]*$`)
	keyword    = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

func isBare(s string) bool { return bareString.MatchString(s) && !keyword.MatchString(s) }

// OptionValue returns the value of an option in a ConfigMap, which is YAML. Numbers are float64, as in JSON. Bare strings and flags skip the
// parser: a cloud has thousands of options, and the parser allocates 10 KiB for each.
func OptionValue(text string) (any, error) {
	switch {
	case text == "true" || text == "false":
		return text == "true", nil
	case isBare(text):
		return text, nil
	}
	var value any
	err := yaml.Unmarshal([]byte(text), &value)
	return value, err
}

// textValue returns the value of a text in a ConfigMap; invalid YAML is a string.
func textValue(text string) any {
	v, err := OptionValue(text)
	if err != nil {
		return text
	}
	return v
}

// same compares values as they appear in a file: an int64 and a float64 may be the same.
func same(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err1 != nil || err2 != nil {
		return reflect.DeepEqual(a, b)
	}
	return bytes.Equal(x, y)
}

// OptionText returns an option's value as YAML for a ConfigMap, on one line where possible.
func OptionText(value any) (string, error) {
	switch v := value.(type) {
	case bool, int, int32, int64:
		return fmt.Sprint(v), nil
	case string:
		if isBare(v) {
			return v, nil
		}
	case []string, []any, map[string]any:
		b, err := json.Marshal(value)
		return string(b), err
	}
	b, err := yaml.Marshal(value)
	return strings.TrimSuffix(string(b), "\n"), err
}

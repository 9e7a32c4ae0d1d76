// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// fileText is a map of options as a YAML file, in the order of the keys. Most options are plain words and numbers, and a pass writes
// forty files of them: only the others go through the YAML library, which costs fifty times as much.
func fileText(all map[string]any) ([]byte, error) {
	var b bytes.Buffer
	for _, key := range sorted(all) {
		if text, ok := plainScalar(all[key]); ok && isWord(key) {
			b.WriteString(key + ": " + text + "\n")
			continue
		}
		entry, err := yaml.Marshal(map[string]any{key: all[key]})
		if err != nil {
			return nil, fmt.Errorf("option %s: %w", key, err)
		}
		b.Write(entry)
	}
	if b.Len() == 0 {
		return []byte("{}\n"), nil
	}
	return b.Bytes(), nil
}

// OptionValue reads an option as it stands in a ConfigMap: its text is YAML. Numbers are float64, as JSON has them.
func OptionValue(text string) (any, error) {
	switch {
	case text == "true", text == "false":
		return text == "true", nil
	case isWord(text):
		return text, nil
	case isNumber(text):
		return strconv.ParseFloat(text, 64)
	}
	var value any
	err := yaml.Unmarshal([]byte(text), &value)
	return value, err
}

// isNumber tells whether a string is a whole number in the usual way of writing, and small enough to be exact.
func isNumber(s string) bool {
	for i, c := range s {
		if c < '0' || c > '9' || i == 0 && c == '0' && len(s) > 1 {
			return false
		}
	}
	return s != "" && len(s) <= 15
}

// plainScalar writes a number, a truth value or a string that YAML reads as that string without quotes.
func plainScalar(value any) (string, bool) {
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case int32:
		return strconv.Itoa(int(v)), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case string:
		return v, isWord(v)
	}
	return "", false
}

// reserved are words that YAML 1.1 does not read as strings, in lower case.
var reserved = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}

// isWord tells whether a string begins with a letter or a slash and goes on with characters that mean nothing there in YAML; a colon does
// only where a blank or the end follows.
func isWord(s string) bool {
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '/'
		rest := c >= '0' && c <= '9' || strings.ContainsRune("_-.@=+?&%:", c)
		if !letter && (i == 0 || !rest || c == ':' && i == len(s)-1) {
			return false
		}
	}
	return s != "" && (len(s) > 5 || !slices.Contains(reserved, strings.ToLower(s)))
}

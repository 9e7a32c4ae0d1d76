// SPDX-License-Identifier: Apache-2.0

package render

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/test/require"
)

// FuzzOption compares the fast paths of OptionText and OptionValue with the YAML library.
func FuzzOption(f *testing.F) {
	for _, s := range []string{
		"", "/opt/cloud", "region0", "true", "True", "no", "Off", "y", "null", "~", "1", "1e3", "0x1f", "e5", "2026-11-27", "12:30:00", "a: b", "a:b", "a #b", "- a", "-",
		"http://10.0.0.1:80/x", ".inf", "NaN", "a b", "a\nb", "é", "<<", "=", "/", "a.", "a-", "a_", "'a'", "[a]", "{}", "yes.", "on-x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, wantErr := yaml.Marshal(s)
		got, err := OptionText(s)
		if (err == nil) != (wantErr == nil) || got != strings.TrimSuffix(string(want), "\n") {
			t.Errorf("text of %q: %q, %v; the library has %q, %v", s, got, err, want, wantErr)
		}
		var value any
		wantErr = yaml.Unmarshal([]byte(s), &value)
		read, err := OptionValue(s)
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(read, value) {
			t.Errorf("value of %q: %#v, %v; the library has %#v, %v", s, read, err, value, wantErr)
		}
	})
}

func TestOptionTextOfNumbersAndFlags(t *testing.T) {
	for _, v := range []any{true, false, 0, -1, 65535, int32(-2147483648), int64(1) << 53, int64(-1) << 53, 1.5, nil} {
		want, err := yaml.Marshal(v)
		require.NoError(t, err)
		if got, err := OptionText(v); err != nil || got != strings.TrimSuffix(string(want), "\n") {
			t.Errorf("text of %v: %q, %v; the library has %q", v, got, err, want)
		}
	}
}

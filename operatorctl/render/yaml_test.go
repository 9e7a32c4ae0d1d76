// SPDX-License-Identifier: Apache-2.0

package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// FuzzFileText: what is written by hand reads as what the library would have written.
func FuzzFileText(f *testing.F) {
	for _, s := range []string{"word", "/opt/cloud", "yes", "On", "null", "~", "1e3", ".inf", "0x1f", "a: b", "a #b", "- a", "a:", "", " a", "a ", "https://x:1/v3", "é", "=", "<<", "y", "123", "a\nb", "2001-01-01", "v4.0.1", "a@b"} {
		f.Add(s, s, int64(len(s)))
	}
	f.Fuzz(func(t *testing.T, key, value string, n int64) {
		all := map[string]any{key: value, "number": n, "flag": n%2 == 0, "list": []string{value}}
		data, err := yaml.Marshal(all)
		if err != nil {
			t.Skip()
		}
		var want, got map[string]any
		if err := yaml.Unmarshal(data, &want); err != nil {
			t.Skip() // the library does not read what it wrote
		}
		text, err := fileText(all)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s\n%s", d, text)
		}
	})
}

// FuzzOptionValue: what is read by hand is what the library would have read.
func FuzzOptionValue(f *testing.F) {
	for _, s := range []string{"word", "true", "True", "12", "012", "0", "-1", "1.5", "1e3", "9007199254740993", "null", "", "no", "/a/b", "[a, b]", "a: 1", "'x'", "0x10", "1_000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		werr := yaml.Unmarshal([]byte(text), &want)
		got, err := OptionValue(text)
		if (err == nil) != (werr == nil) {
			t.Fatalf("%q: %v, want %v", text, err, werr)
		}
		if d := cmp.Diff(want, got); d != "" && err == nil {
			t.Errorf("%q: %s", text, d)
		}
	})
}

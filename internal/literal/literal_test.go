// SPDX-License-Identifier: Apache-2.0

package literal

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for expression, want := range map[string][]string{
		`no space left`:                        {"no space left"},
		`(?i)Swap ON`:                          {"swap on"},
		`Error 10(44|45): (?P<user>\S+) said`:  {"error 10"},
		`crc mismatch|wal: .*(broken|corrupt)`: {"crc mismatch", "corrupt", "broken"},
		`(crc|wal)?.*`:                         nil,
		`a|\d+`:                                nil,
		`(abc)+|(xy){2}`:                       {"abc", "xy"},
		`(abc)*d`:                              {"d"},
		`\s+`:                                  nil,
	} {
		got := Of(regexp.MustCompile(expression))
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, Set(want)) {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}

func TestMayMatch(t *testing.T) {
	re := regexp.MustCompile(`(?i)no space left|Errcode: 28`)
	for text, want := range map[string]bool{"write x: NO SPACE LEFT on device": true, "errcode: 28": true, "there is space": false, "": false} {
		if got := Of(re).MayMatch(strings.ToLower(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	if !Of(regexp.MustCompile(`\d`)).MayMatch("nothing") {
		t.Error("an expression without a literal is not tried")
	}
}

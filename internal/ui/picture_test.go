// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A picture replaces the previous one, fits on the screen, and is shown in full at the end.
func TestPicture(t *testing.T) {
	var b strings.Builder
	p := &Picture{w: &b, height: func() int { return 4 }, end: func() {}}
	p.Close() // nothing to draw
	var want strings.Builder
	for _, step := range []struct{ lines, want string }{
		{"a b", "\r\x1b[J\x1b[?7la\nb\n\x1b[?7h"},
		{"a b c", "\r\x1b[2A\x1b[J\x1b[?7la\nb\nc\n\x1b[?7h"},
		{"a b c d e", "\r\x1b[3A\x1b[J\x1b[?7la\nb\n… and 3 more lines\n\x1b[?7h"},
		{"\x1b[2Ja b c d", "\r\x1b[3A\x1b[J\x1b[?7l [2Ja\nb\n… and 2 more lines\n\x1b[?7h"},
	} {
		p.Show(func(time.Time) []string { return strings.Split(step.lines, " ") })
		want.WriteString(step.want)
	}
	p.Close()
	want.WriteString("\r\x1b[3A\x1b[J [2Ja\nb\nc\nd\n")
	if diff := cmp.Diff(want.String(), b.String()); diff != "" {
		t.Error(diff)
	}
}

// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"strings"
	"testing"
)

func TestQuoteIdent(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"keystone", "`keystone`"},
		{"a`b", "`a``b`"},
		{"x`; DROP DATABASE mysql; --", "`x``; DROP DATABASE mysql; --`"},
		{`back\slash`, "`back\\slash`"},
		{"", ""},
		{"zero\x00", ""},
		{"space ", ""},
		{"emoji😀", ""},
		{"bad\xff", ""},
		{strings.Repeat("x", 64), "`" + strings.Repeat("x", 64) + "`"},
		{strings.Repeat("x", 65), ""},
	} {
		got, err := QuoteIdent(tc.in)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("QuoteIdent(%q) = %q, %v; want %q", tc.in, got, err, tc.want)
		}
	}
}

func TestQuotePattern(t *testing.T) {
	if got, err := quotePattern("my_db%"); err != nil || got != "`my\\_db\\%`" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := quotePattern(""); err == nil {
		t.Error("an empty name was quoted")
	}
}

func TestQuoteAccount(t *testing.T) {
	for in, want := range map[string]string{
		"root@%":    "'root'@'%'",
		"a@b@10.%":  "'a@b'@'10.%'",
		"o'neill@h": "'o''neill'@'h'",
		"role":      "'role'",
	} {
		if got := quoteAccount(in); got != want {
			t.Errorf("quoteAccount(%q) = %s, want %s", in, got, want)
		}
	}
}

// unquote parses a literal as the server's lexer does: it must end exactly at the last quote.
func unquote(t *testing.T, s string, q byte, backslash bool) string {
	t.Helper()
	if len(s) < 2 || s[0] != q {
		t.Fatalf("no literal: %q", s)
	}
	var out strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case backslash && s[i] == '\\' && i+1 < len(s):
			i++
			out.WriteString(map[byte]string{'0': "\x00", 'n': "\n", 'r': "\r", 'Z': "\x1a"}[s[i]])
			if !strings.ContainsRune("0nrZ", rune(s[i])) {
				out.WriteByte(s[i])
			}
		case s[i] == q && i+1 < len(s) && s[i+1] == q:
			out.WriteByte(q)
			i++
		case s[i] == q:
			if i != len(s)-1 {
				t.Fatalf("the literal ends early, at %d of %q", i, s)
			}
			return out.String()
		default:
			out.WriteByte(s[i])
		}
	}
	t.Fatalf("the literal does not end: %q", s)
	return ""
}

func FuzzQuoteString(f *testing.F) {
	for _, s := range []string{"", "plain", "o'neill", `\`, `\'`, "'; DROP TABLE x; --", "\x00\n\r\x1a", "\"`", "päß"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := unquote(t, QuoteString(s), '\'', true); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
	})
}

func FuzzQuoteIdent(f *testing.F) {
	for _, s := range []string{"", "plain", "a`b", "``", "`; DROP DATABASE mysql; --", "\x00", "x ", "😀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := QuoteIdent(s)
		if err != nil {
			return
		}
		if got := unquote(t, q, '`', false); got != s {
			t.Errorf("%q came back as %q", s, got)
		}
		p, err := quotePattern(s)
		if err != nil {
			t.Fatalf("QuoteIdent takes %q, quotePattern does not: %v", s, err)
		}
		if strings.Count(strings.ReplaceAll(p, `\_`, ""), "_") > 0 || strings.Count(strings.ReplaceAll(p, `\%`, ""), "%") > 0 {
			t.Errorf("%q has a wildcard left: %q", s, p)
		}
	})
}

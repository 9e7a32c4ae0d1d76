// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bytes"
	"testing"
)

func FuzzLiteral(f *testing.F) {
	f.Add([]byte("it's\n\\ \x00"))
	f.Fuzz(func(t *testing.T, v []byte) {
		for _, form := range []form{text, binary} {
			got := appendValue(nil, form, v)
			if bytes.ContainsAny(got, "\n\r\x00\x1a") {
				t.Errorf("%q", got)
			}
			body := bytes.TrimPrefix(got, []byte("_binary "))
			if back := unescape(t, body); !bytes.Equal(back, v) {
				t.Errorf("%q became %q", v, back)
			}
		}
	})
}

// unescape parses a literal as a server does.
func unescape(t *testing.T, literal []byte) []byte {
	if len(literal) < 2 || literal[0] != '\'' || literal[len(literal)-1] != '\'' {
		t.Fatalf("%q", literal)
	}
	out := []byte{}
	body := literal[1 : len(literal)-1]
	for i := 0; i < len(body); i++ {
		switch {
		case body[i] == '\'':
			t.Fatalf("an open quote in %q", literal)
		case body[i] != '\\':
			out = append(out, body[i])
		default:
			i++
			c, special := map[byte]byte{'0': 0, 'n': '\n', 'r': '\r', 'Z': 0x1a}[body[i]]
			if !special {
				c = body[i]
			}
			out = append(out, c)
		}
	}
	return out
}

func TestSummaryInWords(t *testing.T) {
	table := TableSummary{Name: "user", Rows: 1}
	s := Summary{Databases: []DatabaseSummary{{Name: "keystone", Tables: []TableSummary{table}}}}
	if text := s.String(); text != "1 database with 1 table and 1 row" {
		t.Error(text)
	}
	s.Databases = append(s.Databases, DatabaseSummary{Name: "empty"})
	if text := s.String(); text != "2 databases with 1 table and 1 row" {
		t.Error(text)
	}
}

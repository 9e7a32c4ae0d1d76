// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Block compares a block of a page with what it should be, in the tests of a directory beside this one. The block lies between
// "<!-- NAME: generated" and "<!-- /NAME -->"; UPDATE=1 writes it.
func Block(t *testing.T, page, name, want string) {
	t.Helper()
	file := filepath.Join("..", page)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	begin := regexp.MustCompile(`(?m)^<!-- ` + name + `: generated.*-->\n`).FindStringIndex(text)
	end := strings.Index(text, "<!-- /"+name+" -->")
	if begin == nil || end < begin[1] {
		t.Fatalf("%s has no block %s", page, name)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(text[:begin[1]]+want+text[end:]), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text[begin[1]:end] != want {
		t.Errorf("block %s of %s is not up to date: run %s with UPDATE=1", name, page, t.Name())
	}
}

// Cell is a text in a cell of a table.
func Cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

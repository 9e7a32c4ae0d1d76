// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// The trees of decision 90 have no more lines of Go than it allows, and hardly fewer: a limit with much room limits nothing.
func TestSizes(t *testing.T) {
	page, err := os.ReadFile("decisions/0090-sizes.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([\\d,]+) \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 8 {
		t.Fatalf("the page has %d limits", len(rows))
	}
	for _, row := range rows {
		limit, err := strconv.Atoi(strings.ReplaceAll(row[2], ",", ""))
		require.NoError(t, err)
		switch n := lines(t, filepath.Join("..", row[1])); {
		case n > limit:
			t.Errorf("%s has %d lines of Go, and decision 90 allows %d", row[1], n, limit)
		case n < limit*9/10:
			t.Errorf("%s has %d lines of Go: lower its limit of %d in decision 90", row[1], n, limit)
		}
	}
}

// lines counts the lines of Go in a tree without tests and generated code.
func lines(t *testing.T, tree string) (n int) {
	t.Helper()
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	err := filepath.WalkDir(tree, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if !generated.Match(text) {
			n += bytes.Count(text, []byte("\n"))
		}
		return err
	})
	require.NoError(t, err)
	return n
}

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

// The repository has no more lines of Go than decision 90 allows, and hardly fewer: a limit with much room limits nothing.
func TestSizes(t *testing.T) {
	page, err := os.ReadFile("decisions/0090-sizes.md")
	require.NoError(t, err)
	number := regexp.MustCompile(`\*\*([\d,]+) lines\*\*`).FindSubmatch(page)
	if number == nil {
		t.Fatal("decision 90 has no limit")
	}
	limit, err := strconv.Atoi(strings.ReplaceAll(string(number[1]), ",", ""))
	require.NoError(t, err)
	switch n := lines(t, ".."); {
	case n > limit:
		t.Errorf("the repository has %d lines of Go, and decision 90 allows %d", n, limit)
	case n < limit*98/100:
		t.Errorf("the repository has %d lines of Go: lower the limit of %d in decision 90", n, limit)
	}
}

// lines counts the lines of Go in a tree without tests, generated code and the component table: adding a component never
// changes the limit.
func lines(t *testing.T, tree string) (n int) {
	t.Helper()
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	err := filepath.WalkDir(tree, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasSuffix(filepath.ToSlash(name), "operatorctl/catalog") {
			return fs.SkipDir
		}
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

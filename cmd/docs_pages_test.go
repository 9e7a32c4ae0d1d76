// SPDX-License-Identifier: Apache-2.0

package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// pages returns all Markdown files for readers, as paths below the root.
func pages(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "test/lab/README.md"}
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			files = append(files, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	return files
}

// handWritten returns the pages whose commands must exist. Decisions describe their own time.
func handWritten(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(pages(t), func(f string) bool {
		return strings.HasPrefix(f, "docs/decisions/") || strings.HasPrefix(f, "docs/reference/cli/") || f == "docs/reference/findings.md"
	})
}

// Sources, help texts and findings name only pages that exist.
func TestNamedPages(t *testing.T) {
	named := regexp.MustCompile(`\bdocs/[\w/.-]+\.(?:md|yaml|json)\b`)
	for _, dir := range []string{"api", "cluster", "cmd", "internal", "operatorctl", "phases", "scripts", "templates", "test"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".go", ".md", ".sh", ".yaml", ".txtar"}, filepath.Ext(path)) || strings.Contains(path, "/testdata/") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, name := range named.FindAllString(string(raw), -1) {
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s names %s, which does not exist", strings.TrimPrefix(path, root+"/"), name)
				}
			}
			return nil
		}))
	}
}

// Identifiers quoted by the glossary exist in their packages: `internal/workflow.Phase`.
func TestGlossaryMatchesTheCode(t *testing.T) {
	quoted := regexp.MustCompile("`((?:api|cluster|cmd|internal|operatorctl|phases)(?:/[\\w]+)*)\\.([A-Za-z]\\w*)`").FindAllStringSubmatch(read(t, "docs/glossary.md"), -1)
	if len(quoted) < 15 {
		t.Errorf("the glossary quotes only %d identifiers", len(quoted))
	}
	declared := map[string]map[string]bool{}
	for _, q := range quoted {
		if declared[q[1]] == nil {
			declared[q[1]] = declarations(t, q[1])
		}
		if !declared[q[1]][q[2]] {
			t.Errorf("docs/glossary.md: package %s has no %s", q[1], q[2])
		}
	}
}

// The files of a walk declare the functions that it names, and no walk has more than eight files.
func TestWalksMatchTheCode(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([\\w/]+\\.go)` \\| (.*?) \\|")
	function := regexp.MustCompile("`(\\w+)`")
	walks := strings.Split(read(t, "docs/contributing/walks.md"), "\n## ")[1:]
	if len(walks) < 3 {
		t.Errorf("the page has %d walks", len(walks))
	}
	for _, walk := range walks {
		title, _, _ := strings.Cut(walk, "\n")
		rows := row.FindAllStringSubmatch(walk, -1)
		if len(rows) == 0 || len(rows) > 8 {
			t.Errorf("%s: %d files", title, len(rows))
		}
		for _, r := range rows {
			source := read(t, r[1])
			for _, f := range function.FindAllStringSubmatch(r[2], -1) {
				if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + f[1] + `[\[(]`).MatchString(source) {
					t.Errorf("%s: %s has no function %s", title, r[1], f[1])
				}
			}
		}
	}
}

// declarations returns the top-level names of a package, without its tests.
func declarations(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("package %s has no files", dir)
	}
	out := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				out[d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						out[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							out[n.Name] = true
						}
					}
				}
			}
		}
	}
	return out
}

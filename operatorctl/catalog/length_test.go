// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// TestEntriesAreShortLiterals checks that a component is one function that returns one literal of at most 25 lines. Anything longer, or computed, must
// have its own name.
func TestEntriesAreShortLiterals(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	entries := 0
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !returnsComponent(fn) {
				continue
			}
			entries++
			if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > 25 {
				t.Errorf("%s has %d lines", fn.Name, n)
			}
			if _, only := fn.Body.List[0].(*ast.ReturnStmt); len(fn.Body.List) != 1 || !only {
				t.Errorf("%s is more than a literal", fn.Name)
			}
		}
	}
	if entries < 50 {
		t.Errorf("only %d entries were found, so nothing is shown", entries)
	}
}

func returnsComponent(fn *ast.FuncDecl) bool {
	if fn.Type.Params.NumFields() > 0 || fn.Type.Results.NumFields() != 1 {
		return false
	}
	sel, ok := fn.Type.Results.List[0].Type.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Component"
}

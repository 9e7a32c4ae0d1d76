// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// TestFilesCallEachOtherOneWay keeps the package readable from top to bottom: no file calls one that calls it, directly or indirectly.
func TestFilesCallEachOtherOneWay(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	lenient := types.Config{Error: func(error) {}} // works without other packages: it still finds the declarations of this one
	_, _ = lenient.Check("reconcile", set, files, info)
	calls := map[string]map[string]string{}
	for id, o := range info.Uses {
		if _, ok := o.(*types.Func); !ok || !o.Pos().IsValid() {
			continue
		}
		if from, to := set.Position(id.Pos()).Filename, set.Position(o.Pos()).Filename; from != to {
			if calls[from] == nil {
				calls[from] = map[string]string{}
			}
			calls[from][to] = o.Name()
		}
	}
	if len(calls["reconcile.go"]) < 10 {
		t.Fatalf("reconcile.go calls %v: too little was found", calls["reconcile.go"])
	}
	done := map[string]bool{}
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		if i := slices.Index(path, name); i >= 0 {
			t.Errorf("these files call each other: %s → %s (%s)", strings.Join(path[i:], " → "), name, calls[path[len(path)-1]][name])
		} else if !done[name] {
			for _, to := range slices.Sorted(maps.Keys(calls[name])) {
				visit(to, append(slices.Clone(path), name))
			}
			done[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		visit(name, nil)
	}
}

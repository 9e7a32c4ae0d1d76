// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"yunion.io/x/ocadm/templates"
)

// static is what needs no cluster.
func (b *bench) static(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "yunion.io/x/ocadm/operatorctl/catalog").Output()
	if err != nil {
		return fmt.Errorf("finding the catalogue: %w", err)
	}
	lines, err := componentLines(strings.TrimSpace(string(out)))
	if err != nil {
		return err
	}
	slices.Sort(lines)
	within := 0
	for _, n := range lines {
		if n <= 25 {
			within++
		}
	}
	median := lines[len(lines)/2]
	b.add(row{ID: "P22", Metric: fmt.Sprintf("lines of a component, median of %d", len(lines)), Goal: "≤ 25",
		Result: fmt.Sprintf("%d; %d of %d have at most 25", median, within, len(lines)), Anchor: "117 or more in eight files"}, median <= 25)
	crd, err := fs.Glob(templates.Files(), "operator/crds/*.yaml")
	if err != nil {
		return err
	}
	size := 0
	for _, name := range crd {
		data, err := fs.ReadFile(templates.Files(), name)
		if err != nil {
			return err
		}
		size = max(size, len(data))
	}
	b.add(row{ID: "P23", Metric: "size of the CRD", Goal: "≤ 200 KiB", Result: fmt.Sprintf("%d KiB", size/1024), Anchor: "no schema"}, size <= 200*1024)
	return nil
}

// componentLines are the lengths of the functions that make a component.
func componentLines(dir string) ([]int, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var lines []int
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			return nil, fmt.Errorf("reading the catalogue: %w", err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Type.Params.NumFields() > 0 || fn.Type.Results.NumFields() != 1 {
				continue
			}
			if sel, ok := fn.Type.Results.List[0].Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Component" {
				lines = append(lines, set.Position(fn.End()).Line-set.Position(fn.Pos()).Line+1)
			}
		}
	}
	return lines, nil
}

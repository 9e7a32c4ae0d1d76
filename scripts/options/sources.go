// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/options"
)

// sources maps modules to directories.
type sources map[string]string

func (s sources) String() string { return fmt.Sprint(map[string]string(s)) }

func (s sources) Set(v string) error {
	module, dir, ok := strings.Cut(v, "=")
	if !ok {
		return fmt.Errorf("%q is not MODULE=DIRECTORY", v)
	}
	s[module] = dir
	return nil
}

// never lists structs whose options make no sense in a file, such as the file's own name and --help.
var never = []ref{{"yunion.io/x/structarg", "", "BaseOptions"}}

// collect adds the options of a struct to a table. Embedded structs that have their own table are included by reference.
func (s sources) collect(all structs, table string, r ref, t *options.File) error {
	if t.Options == nil {
		t.Options = map[string]options.Option{}
	}
	decl, imports, err := s.find(r)
	if err != nil {
		return err
	}
	for _, f := range decl.Fields.List {
		if len(f.Names) > 0 {
			for _, n := range f.Names {
				if err := add(t, n.Name, f); err != nil {
					return fmt.Errorf("%s.%s: %w", r.name, n.Name, err)
				}
			}
			continue
		}
		inner := embedded(f.Type, r, imports)
		if slices.Contains(never, inner) {
			continue
		}
		if name := all.tableOf(inner); name != "" && name != table {
			if !slices.Contains(t.Include, name) {
				t.Include = append(t.Include, name)
			}
			continue
		}
		if err := s.collect(all, table, inner, t); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

// tableOf returns the table of a struct, or "" if it has none.
func (all structs) tableOf(r ref) string {
	for name, have := range all {
		if have == r {
			return name
		}
	}
	return ""
}

// add adds a field to a table. Unexported fields are not options.
func add(t *options.File, name string, f *ast.Field) error {
	if !ast.IsExported(name) {
		return nil
	}
	kind, ok := typeOf(f.Type)
	if !ok {
		return fmt.Errorf("the type %T of a field is unknown", f.Type)
	}
	tag := reflect.StructTag("")
	if f.Tag != nil {
		raw, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return err
		}
		tag = reflect.StructTag(raw)
	}
	stored, _, _ := strings.Cut(tag.Get("json"), ",")
	stored = cmp.Or(stored, snake(name))
	key := stored
	if token := tag.Get("token"); token != "" {
		key = token
	}
	key = snake(key)
	o := options.Option{Type: kind, Alias: snake(tag.Get("alias"))}
	if !options.Sensitive(key) {
		o.Default = defaultOf(kind, tag.Get("default"))
	}
	if stored != key {
		o.Stored = stored
	}
	o.Choices = lists.Filter(strings.Split(tag.Get("choices"), "|"), func(c string) bool { return c != "" })
	t.Options[key] = o
	delete(t.Extra, key)
	return nil
}

// defaultOf returns the default in a tag, formatted as an option value.
func defaultOf(kind options.Type, text string) string {
	if text == "" || kind != options.List && kind != options.Ints {
		return text
	}
	return "[" + strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), ", ") + "]"
}

func typeOf(e ast.Expr) (options.Type, bool) {
	switch x := e.(type) {
	case *ast.Ident:
		switch {
		case x.Name == "string":
			return options.Text, true
		case x.Name == "bool":
			return options.Bool, true
		case strings.HasPrefix(x.Name, "uint"):
			return options.Uint, true
		case strings.HasPrefix(x.Name, "int"):
			return options.Int, true
		case strings.HasPrefix(x.Name, "float"):
			return options.Number, true
		}
	case *ast.StarExpr:
		return typeOf(x.X)
	case *ast.ArrayType:
		switch inner, _ := typeOf(x.Elt); inner {
		case options.Text:
			return options.List, true
		case options.Int:
			return options.Ints, true
		}
	case *ast.MapType:
		return options.Map, true
	}
	return "", false
}

// embedded returns the struct of an embedded field.
func embedded(e ast.Expr, at ref, imports map[string]string) ref {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	switch x := e.(type) {
	case *ast.Ident:
		return ref{at.module, at.dir, x.Name}
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok {
			module, dir := split(imports[id.Name])
			return ref{module, dir, x.Sel.Name}
		}
	}
	return ref{}
}

// split splits an import path into module and directory. Modules of the cloud have three elements.
func split(importPath string) (module, dir string) {
	parts := strings.SplitN(importPath, "/", 4)
	if len(parts) < 4 {
		return importPath, ""
	}
	return strings.Join(parts[:3], "/"), parts[3]
}

// ordinary returns the struct with the options of most services: the type of the variable Options, or else the struct Options, in pkg/NAME/options.
func (s sources) ordinary(name string) (ref, bool) {
	r := ref{cloud, "pkg/" + name + "/options", "Options"}
	files, _ := filepath.Glob(filepath.Join(s[cloud], r.dir, "*.go")) // the pattern is valid
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			continue // collect reports it
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == 1 && v.Names[0].Name == "Options" {
				if kind, ok := v.Type.(*ast.Ident); ok {
					r.name = kind.Name
				}
			}
			return true
		})
	}
	return r, len(files) > 0 && s[cloud] != ""
}

// errNoStruct means that the sources belong to a release without the struct.
var errNoStruct = errors.New("no struct")

// find reads the declaration of a struct and the imports of its file, by their local names.
func (s sources) find(r ref) (*ast.StructType, map[string]string, error) {
	root, have := s[r.module]
	if !have {
		return nil, nil, fmt.Errorf("no sources of %s", r.module)
	}
	dir := filepath.Join(root, r.dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		if decl := declared(file, r.name); decl != nil {
			return decl, importsOf(file), nil
		}
	}
	return nil, nil, fmt.Errorf("%w %s in %s/%s", errNoStruct, r.name, r.module, r.dir)
}

func declared(file *ast.File, name string) *ast.StructType {
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok && t.Name.Name == name {
				st, _ := t.Type.(*ast.StructType)
				return st
			}
		}
	}
	return nil
}

func importsOf(file *ast.File) map[string]string {
	out := map[string]string{}
	for _, i := range file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		out[name] = p
	}
	return out
}

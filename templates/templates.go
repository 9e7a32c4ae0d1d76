// SPDX-License-Identifier: Apache-2.0

// Package templates holds all texts that ocadm fills in: manifests, configuration files, the table of images. It only holds and fills them; only their users
// know their meaning.
package templates

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"text/template"
)

//go:embed images.yaml addons operator units
var files embed.FS

// Files returns the unfilled texts.
func Files() fs.FS { return files }

// Render fills in one file. It returns an error if data lacks a name.
func Render(name string, data any) ([]byte, error) { return RenderFS(files, name, data) }

// RenderFS is like Render, for the files of another package.
func RenderFS(from fs.FS, name string, data any) ([]byte, error) {
	text, err := fs.ReadFile(from, name)
	if err != nil {
		return nil, fmt.Errorf("reading template %s: %w", name, err)
	}
	t, err := template.New(path.Base(name)).Option("missingkey=error").Funcs(funcs()).Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("parsing template %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("rendering template %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// RenderDir fills in all YAML files of a directory, ordered by name, as one stream of documents.
func RenderDir(dir string, data any) ([]byte, error) {
	return stream(dir, func(name string) ([]byte, error) { return Render(name, data) })
}

// ReadDir returns the YAML files of a directory unchanged, as one stream of documents.
func ReadDir(dir string) ([]byte, error) { return stream(dir, files.ReadFile) }

func stream(dir string, read func(name string) ([]byte, error)) ([]byte, error) {
	names, err := fs.Glob(files, dir+"/*.yaml")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("reading templates %s: %w", dir, cmp.Or(err, fs.ErrNotExist))
	}
	var out bytes.Buffer
	for _, name := range names {
		doc, err := read(name)
		if err != nil {
			return nil, err
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.Write(doc)
	}
	return out.Bytes(), nil
}

func funcs() template.FuncMap {
	return template.FuncMap{
		// quote formats a value as a string that is valid in JSON and YAML.
		"quote": func(v any) (string, error) {
			b, err := json.Marshal(fmt.Sprint(v))
			return string(b), err
		},
		// json formats a value as JSON, which is also YAML.
		"json": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return string(b), err
		},
		// indent puts n spaces before each line but the first.
		"indent": func(n int, s string) string {
			return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
		},
	}
}

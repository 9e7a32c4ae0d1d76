// SPDX-License-Identifier: Apache-2.0

// Package templates holds every text that ocadm fills in: manifests, configuration files, the table of images. It only holds and fills
// them; what they mean is known to their users.
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

// Files are the texts, unfilled.
func Files() fs.FS { return files }

// Render fills in one file. A name that data lacks is an error.
func Render(name string, data any) ([]byte, error) { return RenderFS(files, name, data) }

// RenderFS is Render for the files of another package.
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

// RenderDir fills in every YAML file of a directory, in the order of their names, as one stream of documents.
func RenderDir(dir string, data any) ([]byte, error) {
	return stream(dir, func(name string) ([]byte, error) { return Render(name, data) })
}

// ReadDir returns the YAML files of a directory as they are, as one stream of documents.
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
		// quote makes a string that is one in JSON and in YAML.
		"quote": func(v any) (string, error) {
			b, err := json.Marshal(fmt.Sprint(v))
			return string(b), err
		},
		// json is a value as JSON, which is YAML too.
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

// SPDX-License-Identifier: Apache-2.0

// Package options holds the tables of the options that the cloud's services accept, with their types. A service itself ignores unknown options, and
// crashes with a misleading error on values of the wrong type, so the operator checks options first. scripts/options generates the tables from the
// services' sources. Options of a service without a table are not checked.
package options

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/templates/services"
)

// Type is the type of an option's value, as the services parse it.
type Type string

const (
	Text   Type = "text"
	Int    Type = "int"
	Uint   Type = "uint"
	Number Type = "number"
	Bool   Type = "bool"
	// List is a list of words, Ints one of whole numbers.
	List Type = "list"
	Ints Type = "ints"
	Map  Type = "map"
)

// Option is one option of a service.
type Option struct {
	Type Type `json:"type"`
	// Choices lists the values that the service accepts; empty means any.
	Choices []string `json:"choices,omitempty"`
	// Default is the service's built-in value as text; empty if it is the zero value.
	Default string `json:"default,omitempty"`
	// Alias is another name that the service accepts in its file.
	Alias string `json:"alias,omitempty"`
	// Stored is the option's name in the identity service, if it differs from that in the file.
	Stored string `json:"stored,omitempty"`
	// From is the origin of an option that is not in the sources.
	From string `json:"from,omitempty"`
}

// UnmarshalJSON also accepts the short form, the type alone.
func (o *Option) UnmarshalJSON(data []byte) error {
	type plain Option
	if len(data) > 0 && data[0] == '"' {
		*o = Option{}
		return json.Unmarshal(data, &o.Type)
	}
	return json.Unmarshal(data, (*plain)(o))
}

// File is one file of the table.
type File struct {
	// Source is the struct it was generated from, Commits the versions used, as far as they are known.
	Source  string            `json:"source,omitempty"`
	Commits []string          `json:"commits,omitempty"`
	Include []string          `json:"include,omitempty"`
	Options map[string]Option `json:"options,omitempty"`
	Extra   map[string]Option `json:"extra,omitempty"`
}

// ParseFile parses one file of the table.
func ParseFile(data []byte) (File, error) {
	var f File
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return File{}, err
	}
	for _, list := range []map[string]Option{f.Options, f.Extra} {
		for name, o := range list {
			if !slices.Contains([]Type{Text, Int, Uint, Number, Bool, List, Ints, Map}, o.Type) {
				return File{}, fmt.Errorf("option %s has unknown type %q", name, o.Type)
			}
		}
	}
	return f, nil
}

// Table holds the options of one service by name, including aliases.
type Table map[string]Option

// Names returns the names of the options, sorted.
func (t Table) Names() []string { return slices.Sorted(maps.Keys(t)) }

// Of returns the table of a component; false if there is none.
func Of(component string) (Table, bool) {
	all, err := load()
	if err != nil {
		return nil, false // TestTables checks them all
	}
	t, ok := all[component]
	return t, ok
}

const dir = "options"

var load = sync.OnceValues(func() (map[string]Table, error) { return read(services.FS) })

// read builds the tables of all components from their files.
func read(fsys fs.FS) (map[string]Table, error) {
	names, err := fs.Glob(fsys, dir+"/*.yaml")
	if err != nil {
		return nil, err
	}
	all := map[string]Table{}
	for _, name := range names {
		component := name[len(dir)+1 : len(name)-len(".yaml")]
		t := Table{}
		if err := fill(fsys, component, t, nil); err != nil {
			return nil, err
		}
		all[component] = t
	}
	return all, nil
}

// errCircle reports a table that includes itself.
var errCircle = errors.New("tables include each other")

func fill(fsys fs.FS, name string, t Table, within []string) error {
	if slices.Contains(within, name) {
		return fmt.Errorf("reading options of %s: %w", name, errCircle)
	}
	data, err := fs.ReadFile(fsys, dir+"/"+name+".yaml")
	if err != nil {
		return fmt.Errorf("reading options of %s: %w", name, err)
	}
	f, err := ParseFile(data)
	if err != nil {
		return fmt.Errorf("reading options of %s: %w", name, err)
	}
	for _, included := range f.Include {
		if err := fill(fsys, included, t, append(within, name)); err != nil {
			return err
		}
	}
	for _, list := range []map[string]Option{f.Options, f.Extra} {
		for key, o := range list {
			t[key] = o
			if o.Alias != "" {
				same := o
				same.Alias = ""
				same.Stored = cmp.Or(same.Stored, key)
				t[o.Alias] = same
			}
		}
	}
	return nil
}

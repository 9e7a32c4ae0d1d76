// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Format is how a command prints its data. It is a flag whose allowed values are checked when it is parsed.
type Format struct {
	value   string
	allowed []string
}

// NewFormat is a format flag; the first of the allowed values is the default.
func NewFormat(allowed ...string) *Format { return &Format{value: allowed[0], allowed: allowed} }

// String is the value.
func (f *Format) String() string { return f.value }

// Set takes a value if it is allowed.
func (f *Format) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("it is one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = s
	return nil
}

// Type is what help shows.
func (f *Format) Type() string { return strings.Join(f.allowed, "|") }

// Print writes v as JSON or YAML, or calls table for every other format.
func Print(w io.Writer, format string, v any, table func(io.Writer) error) error {
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "yaml":
		raw, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = w.Write(raw)
		return err
	}
	return table(w)
}

// Table writes rows in columns; the header may be nil.
func Table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if header != nil {
		rows = append([][]string{header}, rows...)
	}
	for _, r := range rows {
		if _, err := fmt.Fprintln(tw, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

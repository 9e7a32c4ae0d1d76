// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rivo/uniseg"
	"sigs.k8s.io/yaml"
)

// Choice is a flag that accepts a fixed set of values.
type Choice struct {
	value   *string
	allowed []string
}

// NewChoice returns a flag that sets value, whose current value is the default.
func NewChoice(value *string, allowed ...string) *Choice { return &Choice{value, allowed} }

// NewFormat returns a flag for the output format. The first allowed format is the default.
func NewFormat(allowed ...string) *Choice { return NewChoice(new(allowed[0]), allowed...) }

func (c *Choice) String() string {
	if c.value == nil {
		return "" // pflag compares this with the zero value
	}
	return *c.value
}

// Set rejects values that are not allowed.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.allowed, ", "))
	}
	*c.value = s
	return nil
}

// typeWidth limits the list of values that help shows as the type. Longer lists belong in the flag's description.
const typeWidth = 24

// Type returns what help shows as the type: the values.
func (c *Choice) Type() string {
	if all := strings.Join(c.allowed, "|"); len(all) <= typeWidth {
		return all
	}
	return "string"
}

// Allowed returns the values that Set accepts.
func (c *Choice) Allowed() []string { return c.allowed }

// Print writes v as JSON, JSON in one line or YAML, or calls table for any other format.
func Print(w io.Writer, format string, v any, table func(io.Writer) error) error {
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "jsonl":
		return json.NewEncoder(w).Encode(v)
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

// columnGap is the number of spaces between two columns.
const columnGap = 3

// Table writes rows in aligned columns; header may be nil. Chinese characters are two columns wide.
func Table(w io.Writer, header []string, rows [][]string) error {
	if header != nil {
		rows = append([][]string{header}, rows...)
	}
	var widths []int
	for _, r := range rows {
		widths = append(widths, make([]int, max(0, len(r)-len(widths)))...)
		for i, cell := range r {
			widths[i] = max(widths[i], uniseg.StringWidth(cell))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		for i, cell := range r {
			if b.WriteString(cell); i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell)+columnGap))
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

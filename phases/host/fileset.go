// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"io/fs"
	"slices"

	"yunion.io/x/ocadm/internal/workflow"
)

// File is the desired state of a file.
type File struct {
	Name string
	Data []byte
	Mode fs.FileMode
}

// FileSet holds the files that a phase writes, in this order.
type FileSet []File

// Todo returns which files must still be written or changed, one line each.
func (s FileSet) Todo(h *Host) []string {
	var out []string
	for _, f := range s {
		have, err := h.Files.ReadFile(f.Name)
		st, serr := h.Files.Stat(f.Name)
		switch {
		case err != nil:
			out = append(out, "write "+f.Name)
		case !bytes.Equal(have, f.Data) || serr == nil && st.Mode().Perm() != f.Mode:
			out = append(out, "change "+f.Name)
		}
	}
	return out
}

// Write writes the files and returns the names of those that changed.
func (s FileSet) Write(h *Host, r workflow.Reporter) ([]string, error) {
	var out []string
	for _, f := range s {
		changed, err := h.Files.Write(f.Name, f.Data, f.Mode)
		if err != nil {
			return out, err
		}
		if changed {
			r.Changed("wrote %s", f.Name)
			out = append(out, f.Name)
		}
	}
	return out, nil
}

// Writes makes p a phase that writes files.
func Writes(p Phase, files func(*Host) (FileSet, error)) Phase {
	p.Run = func(_ context.Context, h *Host, r workflow.Reporter) error {
		set, err := files(h)
		if err == nil {
			_, err = set.Write(h, r)
		}
		return err
	}
	return p.Todo(func(_ context.Context, h *Host) ([]string, error) {
		set, err := files(h)
		return set.Todo(h), err
	})
}

// Undo undoes the ledger entries of these files, newest first, and returns the names.
func (h *Host) Undo(r workflow.Reporter, names ...string) ([]string, error) {
	var out []string
	for _, e := range h.Ledger.Created(KindFile) {
		if !slices.Contains(names, e.Name) {
			continue
		}
		if err := h.Files.Undo(e); err != nil {
			return out, err
		}
		r.Changed("removed %s", e.Name)
		out = append(out, e.Name)
	}
	return out, nil
}

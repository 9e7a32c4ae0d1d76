// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"os"
	"path/filepath"
	"testing"
)

// Wherever it is cut off, what a server had is kept, and an empty directory does not pass for a whole copy.
func TestEmptyCutOff(t *testing.T) {
	for name, files := range map[string][]string{
		"before":                 {"complete", "data/old", "data.kept/older"},
		"its mark was replaced":  {"keeping", "data/old"},
		"its data was put aside": {"keeping", "data.kept/old", "data/made-by-the-pod"},
		"it cannot go on":        {"complete/busy", "data/old"}, // the mark cannot be removed
	} {
		dir := t.TempDir()
		for _, f := range files {
			f = filepath.Join(dir, f)
			if err := os.MkdirAll(filepath.Dir(f), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := &Agent{Files: Files{Dir: dir}, Install: []string{"true"}}
		err := a.empty(t.Context())
		if (err != nil) != (name == "it cannot go on") {
			t.Errorf("%s: %v", name, err)
		}
		if a.complete() || !exists(filepath.Join(dir, "data.kept", "old")) || exists(filepath.Join(dir, "data.kept", "older")) || exists(a.Files.data()) {
			t.Errorf("%s: complete %t, kept %t", name, a.complete(), exists(filepath.Join(dir, "data.kept", "old")))
		}
	}
}

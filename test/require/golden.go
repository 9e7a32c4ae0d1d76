// SPDX-License-Identifier: Apache-2.0

package require

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden compares a text with a file. UPDATE=1 rewrites the file.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	NoError(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got), UPDATE=1 rewrites it:\n%s", file, d)
	}
}

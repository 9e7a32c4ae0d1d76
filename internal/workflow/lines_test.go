// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

func linesOf(t *testing.T, path string) []string {
	t.Helper()
	var out []string
	require.NoError(t, ReadLines(path, func(line []byte) error { out = append(out, strings.TrimSpace(string(line))); return nil }))
	return out
}

// A line without a line end does not count, even if it looks complete: the next line replaces it.
func TestLineWithoutItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(path, []byte("{\"a\":1}\n{\"b\":2}"), 0o600))
	before := linesOf(t, path)
	require.NoError(t, AppendLine(path, []byte(`{"c":3}`)))
	after := linesOf(t, path)
	if !slices.Equal(before, []string{`{"a":1}`}) || !slices.Equal(after, []string{`{"a":1}`, `{"c":3}`}) {
		t.Errorf("read %q, then %q", before, after)
	}
	bad := errors.New("no")
	if err := ReadLines(path, func([]byte) error { return bad }); !errors.Is(err, bad) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("got %v", err)
	}
}

// After a power cut, a new file must still have its directory entry.
func TestNewFileIsInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	var synced []string
	original := toDisk
	toDisk = func(f *os.File) error { synced = append(synced, f.Name()); return original(f) }
	t.Cleanup(func() { toDisk = original })
	path := filepath.Join(dir, "lines")
	for range 2 {
		require.NoError(t, AppendLine(path, []byte("x")))
	}
	if want := []string{path, dir, path}; !slices.Equal(synced, want) {
		t.Errorf("forced to the disk: %q, want %q", synced, want)
	}
}

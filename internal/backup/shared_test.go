// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"os"
	"path/filepath"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// In a directory that others may write to, no other user can prepare the file that the backup is written to.
func TestPreparedPart(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.WriteFile(elsewhere, []byte("content"), 0o600))
	for name, prepare := range map[string]func(part string) error{
		"file": func(part string) error { return os.WriteFile(part, nil, 0o666) },
		"link": func(part string) error { return os.Symlink(elsewhere, part) },
	} {
		part := filepath.Join(dir, "."+name+Suffix+partSuffix)
		require.NoError(t, prepare(part))
		_ = os.Chmod(part, 0o666)                   //nolint:gosec // the umask would hide the defect
		spy, err := os.OpenFile(part, os.O_RDWR, 0) // of the other user, open before the backup begins
		require.NoError(t, err)
		f, err := Dir(dir).Create(t.Context(), name+Suffix)
		require.NoError(t, err)
		if _, err := f.Write([]byte("passwords")); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, f.Commit())
		seen := make([]byte, 20)
		if n, _ := spy.Read(seen); string(seen[:n]) == "passwords" {
			t.Errorf("%s: another user has read the backup", name)
		}
		_ = spy.Close()
		if st, err := os.Lstat(filepath.Join(dir, name+Suffix)); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "content" {
		t.Errorf("a link was followed: %q, %v", text, err)
	}
}

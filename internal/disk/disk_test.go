// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, text := range []string{"the first", "another"} {
		require.NoError(t, Replace(file, []byte(text)))
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("the file has %q: %v", got, err)
		}
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
		t.Errorf("the file is %v: %v", st, err)
	}
	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.Mkdir(taken, 0o700))
	if err := Replace(taken, nil); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestNoDirectory(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	_, err := Free(none)
	require.NoError(t, Remove(none))
	if err := Remove(filepath.Dir(none)); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{"Replace": Replace(filepath.Join(none, "file"), nil), "Sync": Sync(none), "Free": err} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if free, err := Free(t.TempDir()); err != nil || free <= 0 {
		t.Errorf("%d bytes are free: %v", free, err)
	}
}

// Another user who may write to the directory cannot prepare the temporary file.
func TestPreparedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, errors.Join(os.WriteFile(file+".new", nil, 0o600), os.Chmod(file+".new", 0o666)))
	spy, err := os.Open(file + ".new")
	require.NoError(t, err)
	defer spy.Close()
	require.NoError(t, Replace(file, []byte("key")))
	if n, _ := spy.Read(make([]byte, 3)); n > 0 {
		t.Error("the other user has read the file")
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// A link takes the place of a file or of another link, also if an interrupted run left the temporary one.
func TestSymlink(t *testing.T) {
	name := filepath.Join(t.TempDir(), "link")
	for _, to := range []string{"a", "b"} {
		if err := os.WriteFile(name+".new", []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(name); got != to || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}

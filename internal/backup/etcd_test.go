// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// aSnapshot returns a file with the name of an etcd snapshot.
func aSnapshot(t *testing.T) (file string, content []byte) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "etcd-20261123T060000Z-r2.db")
	content = append(bytes.Repeat([]byte("secret "), 300_000), 0xd0, 0x0c)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file, content
}

// readEtcd reads a stored snapshot.
func readEtcd(t *testing.T, s Store, name string, ids ...age.Identity) (as string, content []byte, err error) {
	t.Helper()
	var buf bytes.Buffer
	err = ReadEtcd(t.Context(), workflow.Discard{}, s, name, func(n string, size int64) (io.Writer, error) {
		as = n
		return &buf, nil
	}, ids...)
	return as, buf.Bytes(), err
}

// TestEtcdRoundTrip checks that a snapshot is stored beside its backup, encrypted, and that only the secret key of a recipient can read it.
func TestEtcdRoundTrip(t *testing.T) {
	dir, id := Dir(t.TempDir()), key(t)
	file, content := aSnapshot(t)
	p := &Plan{Store: dir, Recipients: []age.Recipient{id.Recipient()}}
	backup := FileName(Header{Cloud: cloud, Time: time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)})
	e, err := p.StoreEtcd(t.Context(), workflow.Discard{}, backup, file)
	if err != nil || e.Name != strings.TrimSuffix(backup, Suffix)+EtcdSuffix || e.Size == 0 || e.SHA256 == "" {
		t.Fatalf("%+v, %v", e, err)
	}
	raw, err := os.ReadFile(filepath.Join(string(dir), e.Name))
	if err != nil || bytes.Contains(raw, []byte("secret")) || int64(len(raw)) != e.Size || digest(raw) != e.SHA256 || !IsPacked(raw) || IsPacked(content) {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if st, err := os.Stat(filepath.Join(string(dir), e.Name)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if as, got, err := readEtcd(t, dir, e.Name, id); err != nil || as != filepath.Base(file) || !bytes.Equal(got, content) {
		t.Errorf("%q, %d bytes, %v", as, len(got), err)
	}
	for _, ids := range [][]age.Identity{nil, {key(t)}} {
		if _, _, err := readEtcd(t, dir, e.Name, ids...); !errors.Is(err, ErrEncrypted) {
			t.Errorf("with %d keys: %v", len(ids), err)
		}
	}
	if _, err := Read(t.Context(), bytes.NewReader(raw), []age.Identity{id}, nil); !errors.Is(err, ErrEtcd) || errors.Is(err, ErrDamaged) {
		t.Errorf("as a backup: %v", err)
	}
	for _, n := range []int{0, 300, len(raw) / 2, len(raw) - 1} {
		for change, bad := range map[string][]byte{"cut off": raw[:n], "changed": slices.Concat(raw[:n], []byte{raw[n] ^ 0x40}, raw[n+1:])} {
			require.NoError(t, os.WriteFile(filepath.Join(string(dir), "bad"+EtcdSuffix), bad, 0o600))
			if _, _, err := readEtcd(t, dir, "bad"+EtcdSuffix, id); err == nil {
				t.Errorf("%s at %d: no error", change, n)
			}
		}
	}
}

// TestEtcdIsNoBackup checks that a backup is not taken for an etcd snapshot, with or without encryption.
func TestEtcdIsNoBackup(t *testing.T) {
	dir, id := Dir(t.TempDir()), key(t)
	for name, recipients := range map[string][]age.Recipient{"encrypted": {id.Recipient()}, "plain": nil} {
		var buf bytes.Buffer
		w, err := NewWriter(&buf, Header{Cloud: cloud, Time: time.Now()}, recipients...)
		if err == nil {
			err = w.Close(Manifest{})
		}
		require.NoError(t, errors.Join(err, os.WriteFile(filepath.Join(string(dir), name), buf.Bytes(), 0o600)))
		if _, _, err := readEtcd(t, dir, name, id); !errors.Is(err, ErrCloud) || !IsPacked(buf.Bytes()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEtcdIsNotStored checks that nothing is stored without a recipient, and that no file remains if the store refuses it or it cannot be read back.
func TestEtcdIsNotStored(t *testing.T) {
	dir, id := Dir(t.TempDir()), key(t)
	file, _ := aSnapshot(t)
	to := []age.Recipient{id.Recipient()}
	for name, c := range map[string]struct {
		plan Plan
		file string
		want error
	}{
		"no recipient": {Plan{Store: dir}, file, ErrUnencrypted},
		"no snapshot":  {Plan{Store: dir, Recipients: to}, file + ".gone", os.ErrNotExist},
		"refused":      {Plan{Store: unstored{dir, EtcdSuffix}, Recipients: to}, file, nil},
		"a full disk":  {Plan{Store: failing{dir, 100}, Recipients: to}, file, nil},
		"another file": {Plan{Store: swapped{dir}, Recipients: to}, file, ErrDamaged},
	} {
		e, err := c.plan.StoreEtcd(t.Context(), workflow.Discard{}, "b"+Suffix, c.file)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || e.Name != "" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("%s: %v", name, left)
		}
	}
}

// swapped is a store that stores something other than what it is given.
type swapped struct{ Dir }

func (s swapped) Create(ctx context.Context, name string) (File, error) {
	f, err := s.Dir.Create(ctx, name)
	return swappedFile{f}, err
}

type swappedFile struct{ File }

func (f swappedFile) Write(b []byte) (int, error) {
	if _, err := f.File.Write(bytes.ToUpper(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

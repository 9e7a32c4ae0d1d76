// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/require"
)

// TestRetention checks that Prune keeps the newest files, the newest proven one, the one just made, and those of other clouds. It keeps a file from a
// clock that was ahead, without counting it as new. An etcd snapshot is removed with its backup, but no other file with such a name.
func TestRetention(t *testing.T) {
	dir := Dir(t.TempDir())
	now := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	put := func(day int, c Cloud, proven bool) string {
		i := Info{Header: Header{Cloud: c, Time: now.AddDate(0, 0, day)}}
		i.Name = FileName(i.Header)
		if proven {
			i.Proven = &now
		}
		for _, name := range []string{i.Name, etcdName(i.Name)} {
			require.NoError(t, os.WriteFile(filepath.Join(string(dir), name), nil, 0o600))
		}
		require.NoError(t, WriteInfo(t.Context(), dir, i))
		return i.Name
	}
	put(0, cloud, true)
	want := []string{put(400, cloud, true), put(9, cloud, false), put(8, cloud, false), put(1, cloud, true), put(0, Cloud{Name: "other", ID: "2"}, false)}
	put(7, cloud, false)
	made := put(-1, cloud, false) // by a clock that is behind
	want = append(want, made)
	snapshots := []string{"copied" + EtcdSuffix, cloud.Name + EtcdSuffix}
	for _, name := range append(slices.Clone(snapshots), "copied"+Suffix) {
		require.NoError(t, os.WriteFile(filepath.Join(string(dir), name), nil, 0o600))
	}
	for _, name := range want {
		snapshots = append(snapshots, etcdName(name))
	}
	slices.Sort(snapshots)
	for range 2 {
		if _, err := Prune(t.Context(), dir, cloud.ID, 2, made, now.AddDate(0, 0, 9)); err != nil {
			t.Fatal(err)
		}
		list, err := List(t.Context(), dir)
		require.NoError(t, err)
		var got []string
		for _, i := range list {
			got = append(got, i.Name)
		}
		if !slices.Equal(got, append(slices.Clone(want), "copied"+Suffix)) {
			t.Errorf("%v", got)
		}
		there := slices.DeleteFunc(files(t, dir), func(name string) bool { return !strings.HasSuffix(name, EtcdSuffix) })
		if !slices.Equal(there, snapshots) {
			t.Errorf("%v, want %v", there, snapshots)
		}
	}
}

// TestSchemaChangeRestartsTheCopy checks that altering a table during the dump restarts it, and that one file remains.
func TestSchemaChangeRestartsTheCopy(t *testing.T) {
	e := setUp(t)
	e.run("CREATE TABLE keystone.a (id INT AUTO_INCREMENT PRIMARY KEY, b BLOB)", "INSERT INTO keystone.a (b) VALUES (RANDOM_BYTES(1000))")
	for range 11 { // 2 MB of incompressible data, so that bytes arrive before the end
		e.run("INSERT INTO keystone.a (b) SELECT RANDOM_BYTES(1000) FROM keystone.a")
	}
	dir := Dir(t.TempDir())
	p, changes := e.plan(changing{Dir: dir, t: t, e: e, left: new(2)}), 0
	info, err := p.Run(t.Context(), said(func(s string) {
		if strings.Contains(s, "starting over") {
			changes++
		}
	}))
	if err != nil || changes != 2 || info.Proven == nil {
		t.Errorf("%d %+v %v", changes, info, err)
	}
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// changing alters a table when the first bytes of a file arrive.
type changing struct {
	Dir
	t    *testing.T
	e    env
	left *int
}

type changingFile struct {
	File
	c    changing
	once *bool
}

func (c changing) Create(ctx context.Context, name string) (File, error) {
	f, err := c.Dir.Create(ctx, name)
	return changingFile{f, c, new(bool)}, err
}

func (f changingFile) Write(b []byte) (int, error) {
	if !*f.once && *f.c.left > 0 && strings.HasSuffix(f.File.(*dirFile).final, Suffix) && len(b) > 1000 {
		*f.once, *f.c.left = true, *f.c.left-1
		f.c.e.run(fmt.Sprintf("ALTER TABLE keystone.user ADD COLUMN c%d INT", *f.c.left))
	}
	return f.File.Write(b)
}

func TestOneProofAtATime(t *testing.T) {
	e := setUp(t)
	s, err := NewScratch(t.Context(), e.admin, cloud.ID, []string{"keystone", strings.Repeat("ü", 64)})
	require.NoError(t, err)
	impatient := open(t, server, cloud, func(c *mysql.Config) { c.LockWait = time.Second })
	if _, err := NewScratch(t.Context(), impatient, cloud.ID, nil); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Error(err)
	}
	if got, err := Databases(t.Context(), e.admin); err != nil || !slices.Equal(got, []string{"keystone", "report"}) {
		t.Errorf("%v %v", got, err)
	}
	require.NoError(t, s.Close(t.Context()))
	e.scratchLeft()
}

// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

func TestDiskOf(t *testing.T) {
	all := []disk{{path: "/"}, {path: "/var", free: 1}, {path: "/var/lib/mysql", free: 2}, {path: "/var/lib/my", free: 3}, {path: "/dev/shm"}, {path: "/var", free: 4}}
	for file, want := range map[string]int64{"/var/lib/mysql/data/": 2, "/var/lib/mysql": 2, "/var/lib/mysql2": 4, "/srv": 0} {
		if got, known := diskOf(all, file); !known || got.free != want {
			t.Errorf("%s: %+v, want the one with %d", file, got, want)
		}
	}
	if got, known := diskOf(all[1:], "/srv/mysql/"); known {
		t.Errorf("got %+v for a file on a disk that is not listed", got)
	}
}

func TestLacks(t *testing.T) {
	for _, c := range []struct {
		room  Room
		bytes int64
		want  bool
	}{
		{Room{Free: 100}, 100, false}, {Room{Free: 100}, 101, true}, {Room{Free: 100, Logged: true}, 50, false}, {Room{Free: 100, Logged: true}, 51, true},
		{Room{Unknown: "it does not say it"}, 1 << 60, false},
	} {
		if got := c.room.Lacks(c.bytes); got != c.want {
			t.Errorf("%+v: %d bytes: %v, want %v", c.room, c.bytes, got, c.want)
		}
	}
}

// Room reports the free space, or why it is unknown; it never reports that of another file system.
func TestRoom(t *testing.T) {
	a := open(t, root(t))
	if a.ServerInfo().Flavour == MySQL {
		if r, err := a.Room(t.Context()); err != nil || r.Unknown == "" || r.Directory == "" {
			t.Errorf("%+v, %v", r, err)
		}
		return
	}
	run(t, a, "UNINSTALL SONAME IF EXISTS 'disks'")
	unknown := func(a *Admin, want string) {
		t.Helper()
		if r, err := a.Room(t.Context()); err != nil || !strings.Contains(r.Unknown, want) || r.Lacks(1<<60) {
			t.Errorf("%+v, %v; want %q", r, err, want)
		}
	}
	unknown(a, "plugin disks")
	run(t, a, "INSTALL SONAME 'disks'")
	r, err := a.Room(t.Context())
	if err != nil || r.Unknown != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(r.Directory, &fs))
	if all := int64(fs.Blocks) * fs.Bsize; r.Free <= 0 || r.Free >= all || r.Logged {
		t.Errorf("%+v of %d", r, all)
	}
	run(t, a, "CREATE USER few@'%' IDENTIFIED BY 'x-1'", "GRANT SELECT ON *.* TO few@'%'")
	cfg := root(t)
	cfg.User, cfg.Password = "few", "x-1"
	unknown(open(t, cfg), "FILE privilege")

	if err := a.Fit(t.Context(), "copying", 1<<20); err != nil {
		t.Error(err)
	}
	if err := a.Fit(t.Context(), "copying", 1<<60); ClassOf(err) != Full || !strings.Contains(err.Error(), fmt.Sprintf("but %d MiB are needed", 1<<40)) {
		t.Errorf("got %v", err)
	}
}

// A server with a binary log beside its databases writes everything twice.
func TestRoomWithBinaryLog(t *testing.T) {
	if server == nil || server.MySQL {
		t.Skip("of MariaDB")
	}
	ctx := context.WithoutCancel(t.Context())
	s, err := mariadb.Start(t.Context(), t.TempDir(), mariadb.Options{Args: []string{"--log-bin", "--plugin-load-add=no_such_plugin"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	a, err := Open(ctx, Config{Host: s.Host, Port: s.Port, User: "root", Password: s.RootPassword})
	require.NoError(t, err)
	defer a.Close()
	if r, err := a.Room(ctx); err != nil || r.Unknown != "" || !r.Logged {
		t.Errorf("%+v, %v", r, err)
	}
}

// CopySize is at least the size of the copy's files, for many small tables and for a larger one.
func TestCopySize(t *testing.T) {
	a := open(t, root(t))
	if _, err := a.EnsureDatabase(t.Context(), nil, "sized"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		run(t, a, fmt.Sprintf("CREATE TABLE sized.t%d (id INT PRIMARY KEY, name VARCHAR(50), KEY (name)) ENGINE=InnoDB", i))
	}
	run(t, a, "INSERT INTO sized.t0 SELECT seq, REPEAT('x', 50) FROM (WITH RECURSIVE n AS (SELECT 1 seq UNION ALL SELECT seq + 1 FROM n WHERE seq < 900) SELECT seq FROM n) s",
		"ANALYZE TABLE sized.t0")
	var files int64
	view := "INNODB_SYS_TABLESPACES"
	if flavour() == MySQL {
		view = "INNODB_TABLESPACES"
	}
	require.NoError(t, a.db.QueryRow("SELECT SUM(FILE_SIZE) FROM information_schema."+view+" WHERE NAME LIKE 'sized/%'").Scan(&files))
	size, err := a.CopySize(t.Context(), "sized", "no such database")
	if err != nil || size < files || size > 3*files {
		t.Errorf("%d, %v; the files have %d", size, err, files)
	}
}

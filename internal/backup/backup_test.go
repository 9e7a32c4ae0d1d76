// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

func TestThereAndBack(t *testing.T) {
	e := setUp(t)
	id, dir := key(t), Dir(t.TempDir())
	before := e.examine("keystone", "report")
	info, err := e.plan(dir, id.Recipient()).Run(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	if info.Proven == nil || info.Tables != 2 || info.Rows != 4 || !info.Encrypted || !slices.Equal(info.Databases, []string{"keystone", "report"}) {
		t.Errorf("%+v", info)
	}
	e.scratchLeft()
	list, err := List(t.Context(), dir)
	if err != nil || len(list) != 1 || list[0].SHA256 != info.SHA256 || list[0].Proven == nil {
		t.Errorf("%+v %v", list, err)
	}
	if b, err := os.ReadFile(filepath.Join(string(dir), info.Name)); err != nil || bytes.Contains(b, []byte("sysadmin")) || !bytes.HasPrefix(b, []byte(ageIntro)) {
		t.Errorf("the file is not encrypted (%v)", err)
	}

	e.run("DELETE FROM keystone.user", "DROP DATABASE report")
	for range 2 { // twice changes nothing
		got, err := restored(t.Context(), workflow.Discard{}, dir, info, e.admin, id)
		require.NoError(t, err)
		if len(got.Objects) != 1 || string(got.Objects[0].JSON) != `{"kind":"Secret"}` || got.Manifest.Images[0] != "registry/keystone:v4.0.3" || got.Header.Version != "v4.0.3" {
			t.Errorf("%+v", got)
		}
		if d := Same(before, e.examine("keystone", "report"), func(d string) string { return d }); len(d) > 0 {
			t.Error(d)
		}
	}
	if got := e.run("SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = 'report'"); strings.TrimSpace(got) != "1" {
		t.Errorf("%s triggers", got)
	}
}

// A view of a table that was dropped cannot be created again. It must not make every copy and restore fail.
func TestInvalidView(t *testing.T) {
	e := setUp(t)
	id, dir := key(t), Dir(t.TempDir())
	e.run("CREATE TABLE keystone.gone (id INT)", "CREATE VIEW keystone.a AS SELECT id FROM keystone.gone", "CREATE VIEW keystone.c AS SELECT id FROM keystone.user",
		"CREATE VIEW keystone.b AS SELECT id FROM keystone.c", "DROP TABLE keystone.gone")
	info, err := e.plan(dir, id.Recipient()).Run(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	if _, err := restored(t.Context(), workflow.Discard{}, dir, info, e.admin, id); err != nil {
		t.Fatal(err)
	}
	if got := e.run("SELECT GROUP_CONCAT(TABLE_NAME ORDER BY TABLE_NAME) FROM information_schema.VIEWS WHERE TABLE_SCHEMA = 'keystone'"); strings.TrimSpace(got) != "b,c" {
		t.Errorf("views %s", got)
	}
}

// TestDatabasesThatAreNotInTheBackup checks that the cloud's other databases with contents are listed, and emptied without losing their owner.
func TestDatabasesThatAreNotInTheBackup(t *testing.T) {
	e := setUp(t)
	e.make("late", "empty")
	e.run("CREATE TABLE late.t (id INT)")
	others, err := Others(t.Context(), e.admin, []string{"keystone", "report"})
	if err != nil || !slices.Equal(others, []string{"late"}) {
		t.Fatalf("%v %v", others, err)
	}
	require.NoError(t, Empty(t.Context(), workflow.Discard{}, e.admin, others))
	if others, err = Others(t.Context(), e.admin, []string{"keystone", "report"}); err != nil || len(others) > 0 {
		t.Errorf("%v %v", others, err)
	}
	if all, err := Databases(t.Context(), e.admin); err != nil || !slices.Contains(all, "late") {
		t.Errorf("%v %v", all, err)
	}
	if err := Empty(t.Context(), workflow.Discard{}, e.admin, []string{"foreign"}); mysql.ClassOf(err) != mysql.Foreign {
		t.Errorf("a database of another cloud: %v", err)
	}
}

func TestRestoreOnAnotherServer(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	info, err := e.plan(dir).Run(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	before := e.examine("keystone", "report")
	second := mariadb.Require(t, mariadb.Options{})
	a := open(t, second, cloud)
	if _, err := restored(t.Context(), workflow.Discard{}, dir, info, a); err != nil {
		t.Fatal(err)
	}
	after, err := dump.Examine(t.Context(), a, []string{"keystone", "report"})
	require.NoError(t, err)
	if d := Same(before, after, func(d string) string { return d }); len(d) > 0 {
		t.Error(d)
	}
	// A database there without an owner is not overwritten.
	third := open(t, second, Cloud{ID: "id-3", Name: "third", Namespace: "x"})
	if _, err := restored(t.Context(), workflow.Discard{}, dir, info, third); mysql.ClassOf(err) != mysql.Foreign {
		t.Errorf("the databases of another cloud are taken: %v", err)
	}
}

func TestKeys(t *testing.T) {
	e := setUp(t)
	id, dir := key(t), Dir(t.TempDir())
	p := e.plan(dir, id.Recipient(), key(t).Recipient())
	p.SkipProof = true
	info, err := p.Run(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	if _, err := Verify(t.Context(), workflow.Discard{}, dir, info, id); err != nil {
		t.Error(err)
	}
	if _, err := Verify(t.Context(), workflow.Discard{}, dir, info, key(t)); !errors.Is(err, ErrEncrypted) {
		t.Error(err)
	}
	if _, err := Verify(t.Context(), workflow.Discard{}, dir, info); !errors.Is(err, ErrEncrypted) {
		t.Error(err)
	}
	r, i, err := Passphrase("correct horse")
	require.NoError(t, err)
	p = e.plan(dir, r)
	p.Identity, p.Header.Time = i, p.Header.Time.Add(time.Second)
	if info, err = p.Run(t.Context(), workflow.Discard{}); err != nil || info.Proven == nil {
		t.Errorf("%+v %v", info, err)
	}
	_, wrong, err := Passphrase("wrong")
	require.NoError(t, err)
	if _, err := Verify(t.Context(), workflow.Discard{}, dir, info, wrong); !errors.Is(err, ErrEncrypted) {
		t.Error(err)
	}
	for _, bad := range []string{"age1xyz", "AGE-SECRET-KEY-1", "ssh-rsa x", "hello"} {
		if _, err := Recipients(bad); err == nil || strings.Contains(err.Error(), "AGE-SECRET-KEY-1") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if got, err := Recipients("# mine\n\n"+id.Recipient().String(), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2qgCdEjDCbWwkEu7WdDUqgTYHwYCkkxQBXU8Ae7jRf me"); err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	if _, err := Identities([]byte(id.String() + "\n")); err != nil {
		t.Error(err)
	}
	if _, err := Identities([]byte("nothing")); err == nil {
		t.Error("no error")
	}
}

func TestNames(t *testing.T) {
	for _, p := range []dump.Piece{{Database: "a", Kind: dump.Table, Name: "b"}, {Database: "..", Kind: dump.Rows, Name: "../x.1"}, {Database: "ü/ ", Kind: dump.View, Name: "a%b.sql"}} {
		name := pieceName(p, 3)
		got, err := parsePiece(name)
		if err != nil || got.Database != p.Database || got.Kind != p.Kind || got.Name != p.Name || strings.Count(name, "/") != 3 || strings.Contains(name, "..") {
			t.Errorf("%+v became %s and %+v (%v)", p, name, got, err)
		}
	}
	for _, bad := range []string{"x", "databases/a/b", "databases/a/table/x.txt", "databases/%zz/table/a.sql"} {
		if _, err := parsePiece(bad); err == nil {
			t.Error(bad)
		}
	}
}

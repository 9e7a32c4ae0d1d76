// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/test/mariadb"
)

var server *mariadb.Server

func TestMain(m *testing.M) {
	os.Exit(mariadb.Main(context.Background(), mariadb.Options{}, func(s *mariadb.Server) int {
		server = s
		return m.Run()
	}))
}

var cloud = Cloud{Namespace: "onecloud", Name: "default", ID: "id-1"}

// env is a server with two databases of the cloud and one of another.
type env struct {
	*testing.T
	admin *mysql.Admin
}

func setUp(t *testing.T) env {
	t.Helper()
	if server == nil {
		t.Skip(mariadb.ErrNotInstalled)
	}
	if err := server.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := env{T: t, admin: open(t, server, cloud)}
	e.make("keystone", "report")
	other := open(t, server, Cloud{Namespace: "onecloud", Name: "other", ID: "id-2"})
	if _, err := other.EnsureDatabase(t.Context(), nil, "foreign"); err != nil {
		t.Fatal(err)
	}
	e.run("CREATE TABLE keystone.user (id INT PRIMARY KEY, name VARCHAR(50))", "INSERT INTO keystone.user VALUES (1, 'sysadmin'), (2, 'zoë')",
		"CREATE TABLE report.log (id INT AUTO_INCREMENT PRIMARY KEY, t LONGTEXT)", "INSERT INTO report.log (t) VALUES (REPEAT('x', 6000000)), ('y')",
		"CREATE TRIGGER report.t AFTER INSERT ON report.log FOR EACH ROW DELETE FROM keystone.user WHERE id = 2", "CREATE TABLE foreign.secret (id INT)")
	return e
}

func open(t *testing.T, s *mariadb.Server, c Cloud) *mysql.Admin {
	t.Helper()
	a, err := mysql.Open(t.Context(), mysql.Config{Host: s.Host, Port: s.Port, User: "root", Password: s.RootPassword, Patience: time.Minute,
		Owner: mysql.Owner{ID: c.ID, Namespace: c.Namespace, Name: c.Name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func (e env) make(databases ...string) {
	e.Helper()
	for _, d := range databases {
		if _, err := e.admin.EnsureDatabase(e.Context(), nil, d); err != nil {
			e.Fatal(err)
		}
	}
}

func (e env) run(statements ...string) string {
	e.Helper()
	out, err := server.Execute(e.Context(), statements...)
	if err != nil {
		e.Fatal(err)
	}
	return out
}

func (e env) examine(databases ...string) dump.Summary {
	e.Helper()
	s, err := dump.Examine(e.Context(), e.admin, databases)
	if err != nil {
		e.Fatal(err)
	}
	return s
}

func (e env) plan(s Store, recipients ...age.Recipient) Plan {
	return Plan{
		Source: Source{
			Header:  Header{Cloud: cloud, Time: time.Now(), Version: "v4.0.3", Ocadm: "v1"},
			Objects: []Object{{Kind: "Secret", Name: "default-credentials", JSON: []byte(`{"kind":"Secret"}`)}}, Images: []string{"registry/keystone:v4.0.3"}, Admin: e.admin,
		},
		Store: s, Recipients: recipients, Report: func(string) {},
	}
}

func (e env) scratchLeft() {
	e.Helper()
	if left := e.run("SHOW DATABASES LIKE 'ocadm\\_scratch%'") + e.run("SELECT name FROM ocadm.owners WHERE name LIKE 'ocadm\\_scratch%'"); left != "" {
		e.Errorf("scratch databases are left: %s", left)
	}
}

func key(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestThereAndBack(t *testing.T) {
	e := setUp(t)
	id, dir := key(t), Dir(t.TempDir())
	before := e.examine("keystone", "report")
	info, err := e.plan(dir, id.Recipient()).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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
		got, err := RestoreDatabases(t.Context(), dir, info, e.admin, id)
		if err != nil {
			t.Fatal(err)
		}
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

func TestRestoreOnAnotherServer(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	info, err := e.plan(dir).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := e.examine("keystone", "report")
	second := mariadb.Require(t, mariadb.Options{})
	a := open(t, second, cloud)
	if _, err := RestoreDatabases(t.Context(), dir, info, a); err != nil {
		t.Fatal(err)
	}
	after, err := dump.Examine(t.Context(), a, []string{"keystone", "report"})
	if err != nil {
		t.Fatal(err)
	}
	if d := Same(before, after, func(d string) string { return d }); len(d) > 0 {
		t.Error(d)
	}
	// A database there that belongs to nobody is not overwritten.
	third := open(t, second, Cloud{ID: "id-3", Name: "third", Namespace: "x"})
	if _, err := RestoreDatabases(t.Context(), dir, info, third); mysql.ClassOf(err) != mysql.Foreign {
		t.Errorf("the databases of another cloud are taken: %v", err)
	}
}

func TestKeys(t *testing.T) {
	e := setUp(t)
	id, dir := key(t), Dir(t.TempDir())
	p := e.plan(dir, id.Recipient(), key(t).Recipient())
	p.SkipProof = true
	info, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), dir, info, id); err != nil {
		t.Error(err)
	}
	if _, err := Verify(t.Context(), dir, info, key(t)); !errors.Is(err, ErrEncrypted) {
		t.Error(err)
	}
	if _, err := Verify(t.Context(), dir, info); !errors.Is(err, ErrEncrypted) {
		t.Error(err)
	}
	r, i, err := Passphrase("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	p = e.plan(dir, r)
	p.Identity, p.Header.Time = i, p.Header.Time.Add(time.Second)
	if info, err = p.Run(t.Context()); err != nil || info.Proven == nil {
		t.Errorf("%+v %v", info, err)
	}
	_, wrong, err := Passphrase("wrong")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), dir, info, wrong); !errors.Is(err, ErrEncrypted) {
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

// TestDamage: whatever is cut off or changed is noticed, before a database is touched.
func TestDamage(t *testing.T) {
	e := setUp(t)
	id := key(t)
	for name, recipients := range map[string][]age.Recipient{"encrypted": {id.Recipient()}, "plain": nil} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			if _, err := e.plan(nil, recipients...).Stream(t.Context(), &buf); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(t.Context(), bytes.NewReader(buf.Bytes()), []age.Identity{id}, nil); err != nil {
				t.Fatal(err)
			}
			var wrong int
			for _, n := range []int{0, 1, 10, 100, 300, buf.Len() / 2, buf.Len() - 20, buf.Len() - 1} {
				if _, err := Read(t.Context(), bytes.NewReader(buf.Bytes()[:n]), []age.Identity{id}, nil); err == nil {
					t.Errorf("cut off at %d of %d bytes: no error", n, buf.Len())
				}
				b := bytes.Clone(buf.Bytes())
				b[n] ^= 0x40
				if _, err := Read(t.Context(), bytes.NewReader(b), []age.Identity{id}, nil); err == nil {
					wrong++ // the header of a zstd frame has bits that say nothing
				}
			}
			if wrong > 1 || wrong > 0 && name == "encrypted" {
				t.Errorf("%d changed files were accepted", wrong)
			}
			if _, err := Read(t.Context(), io.MultiReader(&buf, strings.NewReader("more")), []age.Identity{id}, nil); err == nil {
				t.Error("something at the end: no error")
			}
		})
	}
	dir := Dir(t.TempDir())
	info, err := e.plan(dir).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(string(dir), info.Name)
	if err := os.Truncate(name, info.Size-5); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreDatabases(t.Context(), dir, info, e.admin); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if got := e.run("SELECT COUNT(*) FROM keystone.user"); strings.TrimSpace(got) != "2" {
		t.Errorf("a damaged file was restored: %s", got)
	}
}

// failing is a store whose files fail after so many bytes.
type failing struct {
	Dir
	after int
}

type failingFile struct {
	File
	left *int
}

func (f failing) Create(ctx context.Context, name string) (File, error) {
	file, err := f.Dir.Create(ctx, name)
	return failingFile{file, &f.after}, err
}

func (f failingFile) Write(b []byte) (int, error) {
	if *f.left -= len(b); *f.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return f.File.Write(b)
}

func files(t *testing.T, dir Dir) []string {
	t.Helper()
	all, err := os.ReadDir(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		out = append(out, f.Name())
	}
	return out
}

func TestUnfinishedFilesGo(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	if _, err := e.plan(failing{dir, 300}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("%v are left", got)
	}
	if err := os.WriteFile(filepath.Join(string(dir), ".old"+Suffix+partSuffix), []byte("x"), 0o600); err != nil { // of a run that was killed
		t.Fatal(err)
	}
	if _, err := e.plan(dir).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("%v are left", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := e.plan(dir)
	p.Header.Time = p.Header.Time.Add(time.Minute)
	p.Report = func(s string) {
		if strings.Contains(s, "proving") {
			cancel()
		}
	}
	if _, err := p.Run(ctx); err == nil {
		t.Error("a canceled backup succeeds")
	}
	e.scratchLeft()
	list, err := List(t.Context(), dir)
	if err != nil || len(list) != 2 || list[0].Problem == "" || list[0].Proven != nil {
		t.Errorf("the backup that was not proven: %+v %v", list, err)
	}
}

// full is a store without space.
type full struct{ Dir }

func (full) Free(context.Context) (int64, error) { return 1 << 10, nil }

func TestSpaceIsCheckedFirst(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	_, err := e.plan(full{dir}).Run(t.Context())
	if s := (*SpaceError)(nil); !errors.As(err, &s) || s.Need < 1<<20 {
		t.Error(err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("%v are left", got)
	}
	if n, err := dir.Free(t.Context()); err != nil || n <= 0 {
		t.Errorf("%d %v", n, err)
	}
}

// TestRetention: the newest files stay, and the newest that was proven, and what is another cloud's.
func TestRetention(t *testing.T) {
	dir := Dir(t.TempDir())
	now := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	put := func(day int, c Cloud, proven bool) string {
		i := Info{Header: Header{Cloud: c, Time: now.AddDate(0, 0, day)}}
		i.Name = FileName(i.Header)
		if proven {
			i.Proven = &now
		}
		f, err := dir.Create(t.Context(), i.Name)
		if err == nil {
			err = f.Commit()
		}
		if err := errors.Join(err, writeInfo(t.Context(), dir, i)); err != nil {
			t.Fatal(err)
		}
		return i.Name
	}
	put(0, cloud, true)
	want := []string{put(9, cloud, false), put(8, cloud, false), put(1, cloud, true), put(0, Cloud{Name: "other", ID: "2"}, false)}
	put(7, cloud, false)
	if err := os.WriteFile(filepath.Join(string(dir), "copied"+Suffix), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Prune(t.Context(), dir, cloud.ID, 2); err != nil {
			t.Fatal(err)
		}
		list, err := List(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range list {
			got = append(got, i.Name)
		}
		if !slices.Equal(got, append(slices.Clone(want), "copied"+Suffix)) {
			t.Errorf("%v", got)
		}
	}
}

// TestSchemaChangeBeginsAgain: a table altered during the dump makes it begin again, with one file in the end.
func TestSchemaChangeBeginsAgain(t *testing.T) {
	e := setUp(t)
	e.run("CREATE TABLE keystone.a (id INT AUTO_INCREMENT PRIMARY KEY, b BLOB)", "INSERT INTO keystone.a (b) VALUES (RANDOM_BYTES(1000))")
	for range 11 { // 2 MB that cannot be compressed, so that bytes arrive before the end
		e.run("INSERT INTO keystone.a (b) SELECT RANDOM_BYTES(1000) FROM keystone.a")
	}
	dir := Dir(t.TempDir())
	p, changes := e.plan(changing{Dir: dir, t: t, e: e, left: new(2)}), 0
	p.Report = func(s string) {
		if strings.Contains(s, "beginning again") {
			changes++
		}
	}
	info, err := p.Run(t.Context())
	if err != nil || changes != 2 || info.Proven == nil {
		t.Errorf("%d %+v %v", changes, info, err)
	}
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// changing alters a table as the first bytes of a file arrive.
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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewScratch(t.Context(), open(t, server, cloud), cloud.ID, nil); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Error(err)
	}
	if got, err := Databases(t.Context(), e.admin); err != nil || !slices.Equal(got, []string{"keystone", "report"}) {
		t.Errorf("%v %v", got, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.scratchLeft()
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

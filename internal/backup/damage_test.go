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
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// TestDamage checks that any truncation or change is detected before a database is touched.
func TestDamage(t *testing.T) {
	e := setUp(t)
	id := key(t)
	for name, recipients := range map[string][]age.Recipient{"encrypted": {id.Recipient()}, "plain": nil} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			if _, err := e.plan(nil, recipients...).Stream(t.Context(), workflow.Discard{}, &buf); err != nil {
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
					wrong++ // some bits in the header of a zstd frame have no meaning
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
	info, err := e.plan(dir).Run(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	name := filepath.Join(string(dir), info.Name)
	require.NoError(t, os.Truncate(name, info.Size-5))
	if _, err := restored(t.Context(), workflow.Discard{}, dir, info, e.admin); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if got := e.run("SELECT COUNT(*) FROM keystone.user"); strings.TrimSpace(got) != "2" {
		t.Errorf("a damaged file was restored: %s", got)
	}
}

// failing is a store whose files fail after a number of bytes.
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

// unstored is a store that refuses some files on Commit, as an object store does with single-part files.
type unstored struct {
	Dir
	suffix string
}

type unstoredFile struct {
	File
	refused bool
}

func (u unstored) Create(ctx context.Context, name string) (File, error) {
	f, err := u.Dir.Create(ctx, name)
	return unstoredFile{f, strings.HasSuffix(name, u.suffix)}, err
}

func (f unstoredFile) Commit() error {
	if f.refused {
		f.Abort()
		return errors.New("the quota of the bucket is used up")
	}
	return f.File.Commit()
}

// TestFileThatIsNotStored checks that a file that the store refused on Commit has no name, which callers take to mean that it exists. One whose NAME.json failed has.
func TestFileThatIsNotStored(t *testing.T) {
	e := setUp(t)
	for suffix, stored := range map[string]bool{Suffix: false, Suffix + ".json": true} {
		dir := Dir(t.TempDir())
		p := e.plan(unstored{dir, suffix})
		p.SkipProof = true
		require.NoError(t, p.Prepare(t.Context(), workflow.Discard{}))
		info, err := p.Write(t.Context(), workflow.Discard{})
		if err == nil || (info.Name != "") != stored || len(files(t, dir)) == 0 == stored {
			t.Errorf("%s is refused: %q, %v, and there is %v", suffix, info.Name, err, files(t, dir))
		}
	}
}

func files(t *testing.T, dir Dir) []string {
	t.Helper()
	all, err := os.ReadDir(string(dir))
	require.NoError(t, err)
	var out []string
	for _, f := range all {
		out = append(out, f.Name())
	}
	return out
}

func TestUnfinishedFilesGo(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	if _, err := e.plan(failing{dir, 300}).Run(t.Context(), workflow.Discard{}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("%v are left", got)
	}
	twin := cloud
	twin.ID = "id-9" // its backup is running at this moment
	running := "." + FileName(Header{Cloud: twin}) + partSuffix
	for _, name := range []string{"." + FileName(Header{Cloud: cloud}) + partSuffix, running} { // the first belongs to a run that was killed
		require.NoError(t, os.WriteFile(filepath.Join(string(dir), name), []byte("x"), 0o600))
	}
	if _, err := e.plan(dir).Run(t.Context(), workflow.Discard{}); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 3 || got[0] != running {
		t.Errorf("%v are left", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := e.plan(dir)
	p.Header.Time = p.Header.Time.Add(time.Minute)
	proving := said(func(s string) {
		if strings.Contains(s, "into scratch") {
			cancel()
		}
	})
	if _, err := p.Run(ctx, proving); err == nil {
		t.Error("a canceled backup succeeds")
	}
	e.scratchLeft()
	list, err := List(t.Context(), dir)
	if err != nil || len(list) != 2 || list[0].Problem == "" || list[0].Proven != nil {
		t.Errorf("the backup that was not proven: %+v %v", list, err)
	}
}

// full is a store without free space.
type full struct{ Dir }

func (full) Free(context.Context) (int64, error) { return 1 << 10, nil }

func TestSpaceIsCheckedFirst(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	_, err := e.plan(full{dir}).Run(t.Context(), workflow.Discard{})
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

// A restore that does not fit leaves the databases as they are.
func TestRestoreWithoutRoom(t *testing.T) {
	e := setUp(t)
	if server.MySQL {
		t.Skip("MySQL does not report its free space")
	}
	dir := Dir(t.TempDir())
	info, err := e.plan(dir).Run(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	before := e.examine("keystone", "report")
	checked, err := Verify(t.Context(), workflow.Discard{}, dir, info)
	require.NoError(t, err)
	checked.Manifest.Entries = append(checked.Manifest.Entries, Entry{Name: databasesDir + "/report/rows/log.9.sql", Size: 1 << 60})
	if _, err := Try(t.Context(), workflow.Discard{}, dir, info, checked, e.admin); mysql.ClassOf(err) != mysql.Full {
		t.Error(err)
	}
	if !Agrees(before, e.examine("keystone", "report")) {
		t.Error("the databases were changed")
	}
}

// A restore leaves the databases as they are if the server refuses something in the backup, such as a table of another product.
func TestRestoreThatTheServerRefuses(t *testing.T) {
	e := setUp(t)
	before := e.examine("keystone", "report")
	table := dump.Piece{Database: "keystone", Kind: dump.Table, Name: "user", SQL: []byte("CREATE TABLE `user` (`id` int)")}
	for want, p := range map[string]dump.Piece{
		"ollation":      {Kind: dump.Table, Name: "t", SQL: []byte("CREATE TABLE `t` (`a` char(1)) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nowhere_ci")},
		"routine \"f\"": {Kind: dump.Routine, Name: "f", SQL: []byte("CREATE FUNCTION f() RETURNS nothing RETURN 1")},
		"a row has":     {Kind: dump.Rows, Name: "user", SQL: fmt.Appendf(nil, "INSERT INTO `user` (`id`) VALUES ('%s');\n", strings.Repeat("1", int(e.admin.ServerInfo().MaxAllowedPacket)))},
	} {
		dir, info := Dir(t.TempDir()), Info{Name: "a" + Suffix}
		f, err := dir.Create(t.Context(), info.Name)
		require.NoError(t, err)
		w, err := NewWriter(f, Header{Cloud: cloud, Databases: []string{"keystone"}})
		require.NoError(t, err)
		p.Database = "keystone"
		require.NoError(t, errors.Join(w.Piece(table), w.Piece(p), w.Close(Manifest{}), f.Commit()))
		if _, err := restored(t.Context(), workflow.Discard{}, dir, info, e.admin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if !Agrees(before, e.examine("keystone", "report")) {
			t.Errorf("%s: the databases were changed", want)
		}
		e.scratchLeft()
	}
}

// torn is a directory whose files cannot be read to the end.
type torn struct{ Dir }

func (t torn) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := t.Dir.Open(ctx, name)
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(f, 300), iotest.ErrReader(unix.ECONNRESET)), f}, err
}

// TestLostConnection checks that a broken connection is not reported as damage to the file: another backup would not help.
func TestLostConnection(t *testing.T) {
	dir := Dir(t.TempDir())
	info := Info{Name: "a" + Suffix}
	f, err := dir.Create(t.Context(), info.Name)
	require.NoError(t, err)
	w, err := NewWriter(f, Header{Cloud: cloud})
	if err == nil {
		err = w.Object(Object{Kind: "Secret", Name: "s", JSON: []byte(strings.Repeat("x", 1<<20))})
	}
	require.NoError(t, errors.Join(err, w.Close(Manifest{}), f.Commit()))
	if _, err := Verify(t.Context(), workflow.Discard{}, torn{dir}, info); !errors.Is(err, unix.ECONNRESET) || errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if _, err := Verify(t.Context(), workflow.Discard{}, dir, info); err != nil {
		t.Error(err)
	}
}

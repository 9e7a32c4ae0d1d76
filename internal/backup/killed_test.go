// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// killedIn is the environment variable with the directory in which a child process of the test starts a backup and is killed.
const killedIn = "OCADM_TEST_KILLED_IN"

// halfway stops with half of a file written, and reports that on standard output.
type halfway struct{ Dir }

type halfwayFile struct{ File }

func (h halfway) Create(ctx context.Context, name string) (File, error) {
	f, err := h.Dir.Create(ctx, name)
	return halfwayFile{f}, err
}

func (f halfwayFile) Write(b []byte) (int, error) {
	if _, err := f.File.Write(b[:len(b)/2]); err != nil {
		return 0, err
	}
	if _, err := os.Stdout.WriteString("half\n"); err != nil {
		return 0, err
	}
	select {} // until it is killed
}

// TestKilled checks that a process killed with half a file written leaves nothing that is listed, and that the next run removes the leftovers.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(killedIn); dir != "" {
		_, err := setUp(t).plan(halfway{Dir(dir)}).Run(t.Context(), workflow.Discard{})
		t.Fatal(err)
	}
	e := setUp(t)
	dir := Dir(t.TempDir())
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
	c.Env = append(os.Environ(), killedIn+"="+string(dir), "TMPDIR="+t.TempDir()) // the child cannot remove its server's files
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	buf := make([]byte, 5)
	if _, err := out.Read(buf); err != nil || string(buf) != "half\n" {
		t.Errorf("%q %v", buf, err)
	}
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	left := files(t, dir)
	if len(left) != 1 || !strings.HasSuffix(left[0], partSuffix) {
		t.Errorf("%v are left", left)
	}
	if list, err := List(t.Context(), dir); err != nil || len(list) > 0 {
		t.Errorf("half a file is listed: %+v %v", list, err)
	}
	info, err := e.plan(dir).Run(t.Context(), workflow.Discard{})
	if got := files(t, dir); err != nil || len(got) != 2 || info.Proven == nil {
		t.Errorf("%v are left, %v", got, err)
	}
}

// TestServerWithoutSpace checks that a restore into a server with too little space is reported as such, and succeeds elsewhere.
func TestServerWithoutSpace(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	info, err := e.plan(dir).Run(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	small := mariadb.Require(t, mariadb.Options{Args: []string{"--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:14M"}})
	_, err = restored(t.Context(), workflow.Discard{}, dir, info, open(t, small, cloud))
	if mysql.ClassOf(err) != mysql.Full {
		t.Errorf("%s: %v", mysql.ClassOf(err), err)
	}
	if _, err := restored(t.Context(), workflow.Discard{}, dir, info, e.admin); err != nil {
		t.Error(err)
	}
}

// progress records the reported progress.
type progress struct{ done, total []int64 }

func (*progress) Info(string, ...any) {}

func (p *progress) Progress(done, total int64, unit string) {
	p.done, p.total = append(p.done, done), append(p.total, total)
	if unit != inBytes {
		panic(unit)
	}
}

// TestProgress checks that the bytes only grow, and reach the total.
func TestProgress(t *testing.T) {
	e := setUp(t)
	e.run("ANALYZE TABLE report.log") // otherwise the server reports its size a moment later
	dir, p := Dir(t.TempDir()), e.plan(nil)
	p.Store = dir
	require.NoError(t, p.Prepare(t.Context(), workflow.Discard{}))
	var seen progress
	if _, err := p.Write(t.Context(), &seen); err != nil {
		t.Fatal(err)
	}
	n := len(seen.done)
	if n < 5 || seen.done[n-1] != seen.total[n-1] || seen.total[n-1] < 6<<20 {
		t.Fatalf("%+v", seen)
	}
	for i := range n - 1 {
		if seen.done[i] > seen.done[i+1] || seen.total[i] != seen.total[i+1] {
			t.Errorf("%+v", seen)
		}
	}
}

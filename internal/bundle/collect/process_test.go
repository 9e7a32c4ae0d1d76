// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/test/require"
)

// job describes the work of a separate process: Create, on its own file system of size Disk if set.
type job struct {
	Out, Mirror, Disk string
	Images            []string
	Table             []byte
	Mirrors           Mirrors
}

const jobVariable = "COLLECT_TEST_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		if err := runJob(text); err != nil {
			for _, f := range finding.Of(err) {
				fmt.Println(f.Code)
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runJob(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	if j.Disk != "" {
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", filepath.Dir(j.Out), "tmpfs", 0, "size="+j.Disk); err != nil {
			return err
		}
	}
	table, err := artifacts.Parse(j.Table)
	if err != nil {
		return err
	}
	transport, err := Transport(nil, false)
	if err != nil {
		return err
	}
	_, err = Create(context.Background(), Options{
		Out: j.Out, Kubernetes: kubernetes, Archs: []string{"amd64"}, Images: j.Images, Table: table, Mirror: j.Mirror, Mirrors: j.Mirrors,
		Keychain: authn.NewMultiKeychain(), Transport: transport, Fetcher: fetch.Fetcher{Pause: time.Millisecond}, Sink: ui.Quiet(),
	})
	return err
}

func (s *site) process(t *testing.T, j job) *exec.Cmd {
	t.Helper()
	j.Table = s.table
	if j.Mirror == "" {
		j.Mirror = s.URL + "/m"
	}
	text, err := json.Marshal(j)
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), jobVariable+"="+string(text))
	return c
}

// Downloads completed before a run was killed are not repeated.
func TestKilledHalfway(t *testing.T) {
	s := newSite(t, "amd64")
	o := s.options(t, []string{"amd64"}, s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1), imagetest.Layer(t, 2))))
	s.put(func(_ http.ResponseWriter, r *http.Request) bool {
		stuck := strings.HasPrefix(r.URL.Path, "/m/dl.k8s.io/")
		if stuck {
			<-r.Context().Done()
		}
		return stuck
	})
	c := s.process(t, job{Out: o.Out, Images: o.Images})
	require.NoError(t, c.Start())
	var kept []string
	for len(kept) < 5 { // two layers and three programs
		kept = nil
		entries, err := os.ReadDir(filepath.Join(o.Out+".partial", "blobs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || t.Context().Err() != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			kept = append(kept, "sha256:"+e.Name())
		}
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	if _, err := os.Stat(o.Out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a bundle is there: %v", err)
	}
	// A blob damaged by a power cut is downloaded again.
	bad := slices.Min(kept)
	require.NoError(t, os.WriteFile(filepath.Join(o.Out+".partial", "blobs", strings.TrimPrefix(bad, "sha256:")), nil, 0o600))
	s.put(nil)
	create(t, o)
	programs := s.requests("/m/")
	layers := slices.DeleteFunc(s.requests("/blobs/"), func(d string) bool { return d == configOf(t, imagetest.Layer(t, 1), imagetest.Layer(t, 2)) })
	if n := len(programs) + len(layers); n != 3 { // kubelet, kubectl and the damaged one
		t.Errorf("it downloaded %q and %q", programs, layers)
	}
}

// A full disk is detected before the download if the sizes are known, otherwise when it is full.
func TestFullDisk(t *testing.T) {
	s := newSite(t, "amd64")
	images := []string{s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1), imagetest.Layer(t, 2)))}
	for _, c := range []struct {
		disk, want string
		images     []string
	}{
		{"96k", "too little space", images},
		{"40k", "The disk is full", nil},
		{"4m", "", images},
	} {
		dir := t.TempDir()
		p := s.process(t, job{Out: filepath.Join(dir, "test.bundle"), Disk: c.disk, Images: c.images})
		p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			p.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
			}
		}
		var out, story bytes.Buffer
		p.Stdout, p.Stderr = &out, &story
		err := p.Run()
		if errors.Is(err, syscall.EPERM) || strings.Contains(story.String(), "operation not permitted") {
			t.Skipf("this machine allows no file system of one's own: %v", err)
		}
		if failed := c.want != ""; (err != nil) != failed || failed && (out.String() != CodeNoSpace+"\n" || !strings.Contains(story.String(), c.want)) {
			t.Errorf("%s: %v, codes %q, want %q\n%s", c.disk, err, out.String(), c.want, story.String())
		}
	}
}

// All requests go through the environment's proxy: without one, these names do not resolve.
func TestProxy(t *testing.T) {
	s := newSite(t, "amd64")
	s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1)))
	out := filepath.Join(t.TempDir(), "test.bundle")
	c := s.process(t, job{
		Out: out, Mirror: "http://files.example.org/m", Images: []string{"registry.example.org/x/a:v1"},
		Mirrors: Mirrors{"*": {"http://mirror.example.org"}},
	})
	c.Env = append(c.Env, "HTTP_PROXY="+s.URL, "HTTPS_PROXY=", "NO_PROXY=", "http_proxy=", "https_proxy=", "no_proxy=")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if c := openBundle(t, out).Contents(); len(c.Images) != 1 || c.Images[0].Name != "registry.example.org/x/a:v1" {
		t.Errorf("%+v", c.Images)
	}
}

// Two runs cannot write the same bundle.
func TestOneRunAtATime(t *testing.T) {
	s := newSite(t, "amd64")
	o := s.options(t, []string{"amd64"})
	w, err := openWork(o.Out + ".partial")
	require.NoError(t, err)
	_ = refused(t, o, "OCA-1050")
	w.close()
	create(t, o)
}

// An output that cannot be written is refused before any download.
func TestNoDirectory(t *testing.T) {
	s := newSite(t, "amd64")
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), unix.Mkfifo(pipe, 0o600)))
	for _, out := range []string{filepath.Join(dir, "file", "no", "such"), dir, dir + "/none/", pipe} {
		o := s.options(t, []string{"amd64"})
		o.Out = out
		_ = refused(t, o, CodeWrite)
		if got := s.requests("/m/"); len(got) > 0 {
			t.Errorf("%s: it downloaded %q", out, got)
		}
	}
}

// A memory stick with FAT has space, but not for a file of this size.
func TestTooLargeAFile(t *testing.T) {
	f := finding.Of(notWritten(&fs.PathError{Op: "write", Path: "/media/stick/ocadm.bundle", Err: syscall.EFBIG}))[0]
	if f.Code != CodeNoSpace || !strings.Contains(f.Remedy, "4 GiB") {
		t.Errorf("%+v", f)
	}
}

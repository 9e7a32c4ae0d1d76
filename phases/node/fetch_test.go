// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/version"
)

// pages serves files and their checksums; the first answer for a name in cut ends halfway.
type pages struct {
	mu     sync.Mutex
	files  map[string][]byte
	cut    map[string]bool
	ranges []string
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, ok := p.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if h := r.Header.Get("Range"); h != "" {
		p.ranges = append(p.ranges, h)
	}
	if p.cut[r.URL.Path] {
		delete(p.cut, r.URL.Path)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for n, c := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: n, Mode: 0o755, Size: int64(len(c))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// release is a mirror of everything in artifacts.yaml.
func release(t *testing.T, arch string) *pages {
	t.Helper()
	list, err := artifacts(artifactTable, arch, version.Kubernetes, "")
	if err != nil {
		t.Fatal(err)
	}
	p := &pages{files: map[string][]byte{}, cut: map[string]bool{}}
	for _, a := range list {
		data := []byte("new " + a.Name)
		switch {
		case a.Dir != "":
			files := map[string]string{"LICENSE/x": "no", "../../etc/passwd": "no"}
			for _, n := range neededPlugins() {
				files["./"+n] = "new " + n
			}
			data = archive(t, files)
		case a.Files != nil:
			files := map[string]string{"bin/other": "no"}
			for n := range a.Files {
				files[n] = "new " + path.Base(n)
			}
			data = archive(t, files)
		}
		at := func(url string) string { return "/m/" + strings.TrimPrefix(url, "https://") }
		p.files[at(a.URL)] = data
		p.files[at(a.Checksum)] = []byte(strings.Repeat("0", 64) + "  other\n" + sum(data) + " *" + path.Base(a.URL) + "\n")
		if a.Name == kubelet {
			p.files[at(a.Checksum)] = []byte(sum(data))
		}
	}
	return p
}

func TestSoftwareFromReleasePages(t *testing.T) {
	m := newMachine(t)
	p := release(t, m.Facts.Arch)
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	m.Config.Node.Mirror = s.URL + "/m/"
	before := m.files(t)
	if plan := m.plan(t, Software()); len(plan) != 5 {
		t.Errorf("plan %q", plan)
	}
	m.must(t, Software())
	want := map[string]string{}
	for n, c := range before {
		want[n] = c
	}
	for _, f := range programs() {
		want[path.Join(binDir, f.name)] = "new " + f.name
	}
	for _, n := range neededPlugins() {
		want[path.Join(cniDir, n)] = "new " + n
	}
	if d := cmp.Diff(want, m.files(t)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if left, err := m.Files.ReadDir(downloadDir); err != nil || len(left) > 0 {
		t.Errorf("downloads left: %v, %v", left, err)
	}
	m.done(t, Software())

	// Another version of what ocadm installed is replaced.
	m.versions[runc] = "runc version 1.0.0"
	if done, err := Software().Phases[0].Check(t.Context(), m.Host); done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
	m.undo(t, Software())
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
}

func TestFetchGoesOn(t *testing.T) {
	m := newMachine(t)
	data := bytes.Repeat([]byte("0123456789"), 1000)
	p := &pages{files: map[string][]byte{"/f": data, "/f.sha256": []byte(sum(data))}, cut: map[string]bool{"/f": true}}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	file, err := fetch(t.Context(), nil, m.Files, s.URL+"/f", s.URL+"/f.sha256", func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Files.ReadFile(file); !bytes.Equal(got, data) {
		t.Errorf("got %d bytes", len(got))
	}
	if len(p.ranges) == 0 {
		t.Error("it started again from nothing")
	}
	// Once more: it is there.
	n := 0
	if _, err := fetch(t.Context(), nil, m.Files, s.URL+"/f", s.URL+"/f.sha256", func(c int64) { n += int(c) }); err != nil || n > 0 {
		t.Errorf("downloaded %d bytes again, %v", n, err)
	}
}

func TestFetchRefuses(t *testing.T) {
	data := []byte("data")
	p := &pages{files: map[string][]byte{
		"/f": data, "/f.sha256": []byte(sum([]byte("other"))), "/g.sha256": []byte(sum(data)), "/h.sha256": []byte("<html>"),
	}}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	for _, c := range []struct{ name, want string }{
		{"f", CodeChecksum}, {"g", CodeDownload}, {"h", CodeDownload}, {"none", CodeDownload},
	} {
		m := newMachine(t)
		_, err := fetch(t.Context(), nil, m.Files, s.URL+"/"+c.name, s.URL+"/"+c.name+".sha256", func(int64) {})
		if code(err) != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if c.want == CodeChecksum {
			if left, _ := os.ReadDir(m.Files.Path(downloadDir)); len(left) > 0 {
				t.Error("the wrong file was kept")
			}
		}
	}
}

func TestArtifactTable(t *testing.T) {
	list, err := artifacts(artifactTable, "arm64", "v1.36.3", "")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, a := range list {
		names[a.Name] = true
		if strings.ContainsAny(a.URL+a.Checksum, "{}") || !strings.HasPrefix(a.URL, "https://") || !strings.HasPrefix(a.Checksum, "https://") {
			t.Errorf("%s: addresses %s and %s", a.Name, a.URL, a.Checksum)
		}
		if len(a.targets()) == 0 {
			t.Errorf("%s installs nothing", a.Name)
		}
	}
	for _, want := range []string{containerd, runc, cniPlugins, kubelet, kubectl} {
		if !names[want] {
			t.Errorf("the table lacks %s", want)
		}
	}
}

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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/version"
)

// pages serves files.
type pages map[string][]byte

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, ok := p[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
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

// release is a mirror of everything in artifacts.yaml, with digests of its own in place of the table's until the test ends.
func release(t *testing.T, arch string) pages {
	t.Helper()
	list, err := artifacts(artifactTable, arch, "")
	if err != nil {
		t.Fatal(err)
	}
	p := pages{}
	for i, a := range list {
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
		p["/m/"+strings.TrimPrefix(a.URL, "https://")] = data
		list[i].SHA256 = map[string]string{arch: sum(data)}
	}
	table, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	real := artifactTable
	artifactTable = table
	t.Cleanup(func() { artifactTable = real })
	return p
}

func TestSoftwareFromReleasePages(t *testing.T) {
	m := newMachine(t)
	p := release(t, m.Facts.Arch)
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	m.Config.Node.Mirror = s.URL + "/m/"
	list, err := artifactsOf(m.Host)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		m.versions[a.Name] = a.Name + " version " + a.Version
	}
	m.versions[ctr] = m.versions[containerd]
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

	// A file that prints no version and lost its content in a power cut is installed again, with and without its digest in the ledger.
	m.Config.Node.Mirror = s.URL + "/m/"
	for _, name := range []string{path.Join(cniDir, "bridge"), path.Join(binDir, shim)} {
		for _, cut := range []string{"", "ne"} {
			m.put(t, name, cut)
			m.must(t, Software())
			if raw, err := m.Files.ReadFile(name); err != nil || string(raw) != "new "+path.Base(name) {
				t.Errorf("%s holds %q, %v", name, raw, err)
			}
		}
	}
	for _, a := range list {
		if a.Name == cniPlugins {
			if err := a.note(m.Host, a.Version, nil); err != nil { // as the first release did
				t.Fatal(err)
			}
		}
	}
	if done, err := Software().Phases[1].Check(t.Context(), m.Host); done || err != nil {
		t.Errorf("what is no program counts as one: %v, %v", done, err)
	}
	m.must(t, Software())
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

// The digest is ours: no file beside the download can vouch for another one, and nothing that is not the file is taken.
func TestFetchRefuses(t *testing.T) {
	data := []byte("data")
	p := pages{"/f": data, "/f.sha256": []byte(sum(data))}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	for name, want := range map[string]string{"f": CodeChecksum, "none": CodeDownload} {
		m := newMachine(t)
		_, err := fetchFile(t.Context(), fetch.Fetcher{}, m.Files, s.URL+"/"+name, sum([]byte("other")), fetch.Progress{Done: func(int64) {}, More: func(int64) {}})
		if code(err) != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
		if want == CodeChecksum {
			if left, _ := os.ReadDir(m.Files.Path(downloadDir)); len(left) > 0 {
				t.Error("the wrong file was kept")
			}
		}
	}
}

func TestArtifactTable(t *testing.T) {
	names := map[string]artifact{}
	for _, arch := range []string{"amd64", "arm64"} {
		list, err := artifacts(artifactTable, arch, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			names[a.Name] = a
			if strings.ContainsAny(a.URL, "{}") || !strings.HasPrefix(a.URL, "https://") || !strings.Contains(a.URL, arch) {
				t.Errorf("%s: address %s", a.Name, a.URL)
			}
			if d, err := hex.DecodeString(a.SHA256[arch]); err != nil || len(d) != sha256.Size || a.SHA256["amd64"] == a.SHA256["arm64"] {
				t.Errorf("%s: digest of %s: %q", a.Name, arch, a.SHA256[arch])
			}
			if len(a.targets()) == 0 {
				t.Errorf("%s installs nothing", a.Name)
			}
		}
	}
	for _, want := range []string{containerd, runc, cniPlugins, kubelet, kubectl} {
		if names[want].Name == "" {
			t.Errorf("the table lacks %s", want)
		}
	}
	for _, name := range []string{kubelet, kubectl} {
		if names[name].Version != version.Kubernetes {
			t.Errorf("%s is pinned to %s, and this program installs Kubernetes %s", name, names[name].Version, version.Kubernetes)
		}
	}
}

// A machine whose architecture has no digest gets no program that nothing vouches for.
func TestNoDigestNoDownload(t *testing.T) {
	m := newMachine(t)
	m.Facts.Arch = "riscv64"
	if _, err := outstandingArtifacts(t.Context(), m.Host, isRuntime); err == nil || !strings.Contains(err.Error(), "no digest for riscv64") {
		t.Errorf("got %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/artifacts/artifactstest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/require"
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

// release is a mirror of all downloads, whose digests replace the table's until the test ends.
func release(t *testing.T, arch string) pages {
	t.Helper()
	files, table := artifactstest.Release(t, version.Kubernetes, arch)
	p := pages{}
	for name, data := range files {
		p["/m"+name] = data
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
	_, list, err := artifactsOf(m.Host)
	require.NoError(t, err)
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

	// A file that prints no version and was emptied by a power cut is installed again, with or without its digest in the ledger.
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
			if err := a.note(m.Host, a.Version, nil); err != nil { // like the first release
				t.Fatal(err)
			}
		}
	}
	if done, err := Software().Phases[1].Check(t.Context(), m.Host); done || err != nil {
		t.Errorf("what is no program counts as one: %v, %v", done, err)
	}
	m.must(t, Software())
	m.done(t, Software())

	// Another version that ocadm installed is replaced.
	m.versions[runc] = "runc version 1.0.0"
	if done, err := Software().Phases[0].Check(t.Context(), m.Host); done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
	m.undo(t, Software())
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
}

// The digest is ours: no file next to the download can vouch for it, and nothing but the file is accepted.
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

// A machine whose architecture has no digest gets no unverified program.
func TestNoDigestNoDownload(t *testing.T) {
	m := newMachine(t)
	m.Facts.Arch = "riscv64"
	if _, err := outstandingArtifacts(t.Context(), m.Host, isRuntime); err == nil || !strings.Contains(err.Error(), "for riscv64 is known") {
		t.Errorf("got %v", err)
	}
}

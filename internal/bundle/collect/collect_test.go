// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/artifacts/artifactstest"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

// A bundle downloaded from a registry and a file server has the same content as one made from local files. A second run changes nothing.
func TestCreate(t *testing.T) {
	archs := []string{"amd64", "arm64"}
	s := newSite(t, archs...)
	shared := imagetest.Layer(t, 1)
	all := s.push(t, "x/all:v1", imagetest.Image(t, "amd64", shared), imagetest.Image(t, "arm64", shared, imagetest.Layer(t, 2)), imagetest.Image(t, "riscv64", imagetest.Layer(t, 3)))
	other := s.push(t, "unnamed/other:v1", imagetest.Image(t, "arm64", imagetest.Layer(t, 4)), imagetest.Image(t, "amd64", imagetest.Layer(t, 5)))
	o := s.options(t, archs, other, all)
	o.Versions = map[string]string{"cloud": "v4.0.3"}
	b := create(t, o)

	direct := bundle.Spec{}
	for _, arch := range archs {
		images := []bundle.ImageSource{{Name: all, Image: imagetest.Image(t, "amd64", shared)}, {Name: other, Image: imagetest.Image(t, "amd64", imagetest.Layer(t, 5))}}
		if arch == "arm64" {
			images = []bundle.ImageSource{{Name: all, Image: imagetest.Image(t, "arm64", shared, imagetest.Layer(t, 2))}, {Name: other, Image: imagetest.Image(t, "arm64", imagetest.Layer(t, 4))}}
		}
		versions := map[string]string{"cloud": "v4.0.3", "containerd": "v2.3.4", "runc": "v1.5.2", "cni-plugins": "v1.9.1"}
		direct.Platforms = append(direct.Platforms, bundle.Platform{
			Info:  bundle.Info{OS: "linux", Arch: arch, KubernetesVersion: kubernetes, Versions: versions},
			Files: nodeFiles(arch), Images: images,
		})
	}
	file := filepath.Join(t.TempDir(), "direct.bundle")
	require.NoError(t, bundle.Build(t.Context(), file, direct))
	for _, arch := range archs {
		got, want := on(t, b, arch).Contents(), on(t, openBundle(t, file), arch).Contents()
		for i, f := range got.Files {
			if f.Origin == nil || !strings.HasPrefix(f.Origin.URL, "https://") || !artifacts.IsDigest(f.Origin.SHA256) {
				t.Errorf("%s comes from %+v", f.Path, f.Origin)
			}
			got.Files[i].Origin = nil
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-direct +downloaded):\n%s", arch, d)
		}
	}
	if _, err := os.Stat(o.Out + ".partial"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the downloads are left: %v", err)
	}

	s.put(nil)
	before, _ := os.Stat(o.Out)
	res, err := Create(t.Context(), o)
	after, _ := os.Stat(o.Out)
	if err != nil || !res.Unchanged || !os.SameFile(before, after) || len(s.requests("/m/")) > 0 {
		t.Errorf("again: %+v, %v, downloads %q", res, err, s.requests("/m/"))
	}
	o.Versions["cloud"] = "v4.0.4"
	if res, err := Create(t.Context(), o); err != nil || res.Unchanged {
		t.Errorf("with another version: %+v, %v", res, err)
	}
}

// nodeFiles returns the files in artifactstest.Release.
func nodeFiles(arch string) (out []bundle.FileSource) {
	var paths []string
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "kubectl"} {
		paths = append(paths, "/usr/local/bin/"+p)
	}
	for _, p := range artifactstest.Plugins {
		paths = append(paths, "/opt/cni/bin/"+p)
	}
	for _, p := range paths {
		text := "new " + filepath.Base(p) + " " + arch
		out = append(out, bundle.FileSource{Path: p, Mode: 0o755, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text)), nil
		}})
	}
	return out
}

func on(t *testing.T, b *bundle.Bundle, arch string) *bundle.Bundle {
	t.Helper()
	view, err := b.On(arch)
	require.NoError(t, err)
	return view
}

// A bundle with a damaged blob is not up to date: it is written again.
func TestCreateOverADamagedBundle(t *testing.T) {
	s := newSite(t, "amd64")
	o := s.options(t, []string{"amd64"}, s.push(t, "x/a:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1))))
	create(t, o)
	raw, err := os.ReadFile(o.Out)
	require.NoError(t, err)
	damaged := false
	for at := 0; at < len(raw) && !damaged; at += 512 { // the first block whose damage only a complete check finds
		raw[at] ^= 1
		require.NoError(t, os.WriteFile(o.Out, raw, 0o600))
		if b, err := bundle.Open(t.Context(), o.Out); err == nil {
			damaged = b.Verify(t.Context(), nil) != nil
			_ = b.Close()
		}
		raw[at] ^= 1
	}
	if !damaged {
		t.Fatal("no block is that of a layer or program")
	}
	if res, err := Create(t.Context(), o); err != nil || res.Unchanged {
		t.Errorf("%+v, %v", res, err)
	}
	openBundle(t, o.Out) // which verifies it
}

// A bundle that continues another one neither downloads nor contains the other's blobs.
func TestSince(t *testing.T) {
	s := newSite(t, "amd64")
	shared, added := imagetest.Layer(t, 1), imagetest.Layer(t, 2)
	first := s.push(t, "x/a:v1", imagetest.Image(t, "amd64", shared))
	o := s.options(t, []string{"amd64"}, first)
	old := create(t, o)
	o.Images = append(o.Images, s.push(t, "x/b:v1", imagetest.Image(t, "amd64", shared, added)))
	o.Out, o.Since = filepath.Join(filepath.Dir(o.Out), "new.bundle"), old
	s.put(nil)
	b := create(t, o)
	digest, err := added.Digest()
	require.NoError(t, err)
	if got := s.requests("/m/"); len(got) > 0 {
		t.Errorf("it downloaded %q", got)
	}
	if got := s.requests("/blobs/"); !slices.Contains(got, digest.String()) || slices.Contains(got, mustDigest(t, shared)) {
		t.Errorf("it asked for %q", got)
	}
	if c := b.Contents(); len(c.Images) != 2 || len(c.Files) != 10 {
		t.Errorf("it has %d images and %d files", len(c.Images), len(c.Files))
	}
	if res, err := Create(t.Context(), o); err != nil || !res.Unchanged {
		t.Errorf("again: %+v, %v", res, err)
	}
	o.Since = nil
	if res, err := Create(t.Context(), o); err != nil || res.Unchanged {
		t.Errorf("as a whole: %+v, %v", res, err)
	}
}

func mustDigest(t *testing.T, l v1.Layer) string {
	t.Helper()
	h, err := l.Digest()
	require.NoError(t, err)
	return h.String()
}

// A version that is not in the table needs the user's consent, and then the server's own checksum is used.
func TestUnpinned(t *testing.T) {
	s := newSite(t, "amd64")
	o := s.options(t, []string{"amd64"})
	real, err := artifacts.Parse(artifacts.Embedded)
	require.NoError(t, err)
	o.Kubernetes = "v1.36.99"
	if f := refused(t, o, artifacts.CodeUnpinned); !strings.Contains(f.Remedy, "--allow-unpinned") || !strings.Contains(f.Cause, kubernetes) {
		t.Errorf("%+v", f)
	}
	if _, err := os.Stat(o.Out + ".partial"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused run left something: %v", err)
	}
	for _, a := range real.Of(o.Kubernetes, "amd64", "") {
		if a.Version == o.Kubernetes {
			page := "/" + strings.TrimPrefix(a.Home, "https://")
			s.files[page], s.files[page+".sha256"] = []byte(a.Name), []byte(artifactstest.Sum([]byte(a.Name)))
		}
	}
	o.AllowUnpinned = true
	if c := create(t, o).Contents(); c.Info.KubernetesVersion != "v1.36.99" {
		t.Errorf("%+v", c.Info)
	}
	o.Kubernetes = "v1.36.98"
	_ = refused(t, o, CodeDownload)
	for page := range s.files {
		if strings.HasSuffix(page, ".sha256") {
			s.files[strings.Replace(page, "1.36.99", "1.36.98", 1)] = []byte("<html>")
		}
	}
	if f := refused(t, o, CodeDownload); !strings.Contains(f.Cause, "no SHA-256") {
		t.Errorf("%+v", f)
	}
	o.Archs = []string{"riscv64"}
	if f := refused(t, o, artifacts.CodeUnpinned); !strings.Contains(f.Remedy, "--arch") {
		t.Errorf("%+v", f)
	}
}

// All problems with images are reported together.
func TestMissingImages(t *testing.T) {
	s := newSite(t, "amd64", "arm64")
	index := s.push(t, "x/index:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1)), imagetest.Image(t, "riscv64", imagetest.Layer(t, 2)))
	single := s.push(t, "x/single:v1", imagetest.Image(t, "amd64", imagetest.Layer(t, 1)))
	o := s.options(t, []string{"amd64", "arm64"}, index, single, s.host()+"/x/none:v1", "not a name")
	_, err := Create(t.Context(), o)
	for _, want := range []string{
		index + " does not exist for linux/arm64", "it exists for linux/amd64, linux/riscv64",
		single + " does not exist for linux/arm64", "it exists for linux/amd64",
		s.host() + "/x/none:v1 cannot be downloaded", "404 Not Found", "not a name cannot be downloaded",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
}

// The ocadm for another architecture is a file in that architecture's part of the bundle, and a bundle without it is not up to date.
func TestPrograms(t *testing.T) {
	s := newSite(t, "amd64", "arm64")
	o := s.options(t, []string{"amd64", "arm64"})
	create(t, o)
	file := filepath.Join(t.TempDir(), "ocadm")
	require.NoError(t, os.WriteFile(file, []byte("ocadm for arm64"), 0o600))
	o.Programs = map[string]Program{"arm64": {File: file, Version: "v1", SHA256: sum([]byte("ocadm for arm64"))}}
	b := create(t, o)
	for arch, want := range map[string]bool{"amd64": false, "arm64": true} {
		view, err := b.On(arch)
		require.NoError(t, err)
		has := slices.ContainsFunc(view.Contents().Files, func(f bundle.FileInfo) bool { return f.Path == programPath })
		if has != want || (view.Contents().Info.Versions["ocadm"] == "v1") != want {
			t.Errorf("%s: has ocadm %v: %v", arch, has, view.Contents().Info.Versions)
		}
	}
	if res, err := Create(t.Context(), o); err != nil || !res.Unchanged {
		t.Errorf("a second time: %+v, %v", res, err)
	}
}

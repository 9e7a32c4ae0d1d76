// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

var testInfo = Info{OS: "linux", Arch: "amd64", KubernetesVersion: "v1.36.3", Versions: map[string]string{"containerd": "v2.4.2"}}

const (
	imageA = "registry.example/a:v1"
	imageB = "registry.example/b:v1"
)

func content(s string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

func testFiles() []FileSource {
	return []FileSource{
		{Path: "usr/local/bin/kubelet", Mode: 0o755, Open: content(strings.Repeat("kubelet", 1000))},
		{Path: "/opt/cni/bin/bridge", Mode: 0o755, Open: content("bridge")},
		{Path: "/opt/cni/bin/empty", Mode: 0o644, Open: content("")},
	}
}

func testImages(t *testing.T) []ImageSource {
	shared := imagetest.Layer(t, 1)
	return []ImageSource{
		{Name: imageB, Image: imagetest.Image(t, "amd64", shared, imagetest.Layer(t, 2))},
		{Name: imageA, Image: imagetest.Image(t, "amd64", shared)},
	}
}

func create(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.bundle")
	require.NoError(t, Create(t.Context(), path, testInfo, testFiles(), testImages(t)))
	return path
}

func open(t *testing.T, path string) *Bundle {
	t.Helper()
	b, err := Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func code(err error) string {
	if l := finding.Of(err); len(l) == 1 {
		return l[0].Code
	}
	return ""
}

func TestCreateAndOpen(t *testing.T) {
	path := create(t)
	b := open(t, path)
	got := b.Contents()
	if d := cmp.Diff(testInfo, got.Info); d != "" {
		t.Errorf("info (-want +got):\n%s", d)
	}
	var names []string
	for _, f := range got.Files {
		names = append(names, f.Mode.String()+" "+f.Path)
	}
	for _, i := range got.Images {
		names = append(names, i.Name)
	}
	want := []string{"-rwxr-xr-x /opt/cni/bin/bridge", "-rw-r--r-- /opt/cni/bin/empty", "-rwxr-xr-x /usr/local/bin/kubelet", imageA, imageB}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("contents (-want +got):\n%s", d)
	}
	var last, total int64
	if err := b.Verify(t.Context(), func(d, n int64) { last, total = d, n }); err != nil {
		t.Error(err)
	}
	if last == 0 || last != total {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	for _, f := range testFiles() {
		r, err := b.OpenFile(f.Path)
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		in, _ := f.Open()
		original, _ := io.ReadAll(in)
		if err != nil || !bytes.Equal(data, original) {
			t.Errorf("%s: got %d bytes, %v; want %d", f.Path, len(data), err, len(original))
		}
		r.Close()
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCreateIsDeterministicAndSharesBlobs(t *testing.T) {
	one, err := os.ReadFile(create(t))
	require.NoError(t, err)
	two, err := os.ReadFile(create(t))
	require.NoError(t, err)
	if !bytes.Equal(one, two) {
		t.Error("the same input gave different bundles")
	}
	seen := map[string]bool{}
	for r := tar.NewReader(bytes.NewReader(one)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if len(seen) == 0 && h.Name != "index.json" {
			t.Errorf("first entry is %s", h.Name)
		}
		if seen[h.Name] {
			t.Errorf("%s is there twice", h.Name)
		}
		seen[h.Name] = true
	}
	// index, layout, node manifest and config, 3 files, 2 image manifests and configs, 3 layers of which one is used twice
	if want := 2 + 2 + 3 + 4 + 2; len(seen) != want {
		t.Errorf("%d entries, want %d", len(seen), want)
	}
}

func TestCreateRefuses(t *testing.T) {
	arm := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xb7\x00" + strings.Repeat("\x00", 40)
	image := imagetest.Image(t, "amd64")
	for _, c := range []struct {
		name, want string
		info       Info
		files      []FileSource
		images     []ImageSource
	}{
		{"no platform", "must be given", Info{}, nil, nil},
		{"path outside", "want a plain file path", testInfo, []FileSource{{Path: "../etc/shadow", Open: content("")}}, nil},
		{"path with dots", "want a plain file path", testInfo, []FileSource{{Path: "/usr/../etc/shadow", Open: content("")}}, nil},
		{"no path", "want a plain file path", testInfo, []FileSource{{Path: "/", Open: content("")}}, nil},
		{"file twice", "given twice", testInfo, []FileSource{{Path: "/a", Open: content("")}, {Path: "a", Open: content("")}}, nil},
		{"program for another machine", "EM_AARCH64", testInfo, []FileSource{{Path: "/a", Open: content(arm)}}, nil},
		{"image for another machine", "linux/arm64", testInfo, nil, []ImageSource{{imageA, imagetest.Image(t, "arm64")}}},
		{"image twice", "given twice", testInfo, nil, []ImageSource{{imageA, image}, {imageA, image}}},
		{"image without registry", "checking its name", testInfo, nil, []ImageSource{{"pause:3", image}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "b")
			err := Create(t.Context(), path, c.info, c.files, c.images)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestCreateKeepsTheOldBundleOnFailure(t *testing.T) {
	path := create(t)
	before, _ := os.ReadFile(path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Create(ctx, path, testInfo, testFiles(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the old bundle changed")
	}
}

func TestChecks(t *testing.T) {
	b := open(t, create(t))
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"this platform", "", b.CheckPlatform("amd64", "v1.36.3")},
		{"any version", "", b.CheckPlatform("amd64", "")},
		{"other architecture", CodeWrongPlatform, b.CheckPlatform("arm64", "v1.36.3")},
		{"other version", CodeWrongVersion, b.CheckPlatform("amd64", "v1.35.0")},
		{"images there", "", b.CheckImages([]string{imageA, imageB})},
		{"image missing", CodeMissingImages, b.CheckImages([]string{"registry.example/c:v1", imageA})},
	} {
		if got := code(c.err); got != c.want || (c.want == "") != (c.err == nil) {
			t.Errorf("%s: got %v, want code %q", c.name, c.err, c.want)
		}
	}
	if d := cmp.Diff([]string{"a:1", "z:1"}, b.Require([]string{"z:1", imageA, "a:1", "z:1"})); d != "" {
		t.Errorf("missing (-want +got):\n%s", d)
	}
	if err := b.CheckImages([]string{"registry.example/c:v1"}); !strings.Contains(err.Error(), "registry.example/c:v1") {
		t.Errorf("the missing image is not named: %v", err)
	}
	if _, err := b.OpenFile("/usr/bin/none"); code(err) != CodeMissingFile {
		t.Errorf("got %v", err)
	}
	if _, err := b.OpenFile("../secret"); err == nil {
		t.Error("a path outside was opened")
	}
}

// A bundle of another version lacks dozens of images: the cause names the versions and a few images.
func TestLackingImages(t *testing.T) {
	var have, missing []string
	for i := range 31 {
		have = append(have, fmt.Sprintf("reg.example:5000/cloud/c%02d:v4.0.3", i))
		missing = append(missing, fmt.Sprintf("reg.example:5000/cloud/c%02d:v4.0.9", i))
	}
	f := LackingImages("Bundle b lacks images", "the bundle", have, missing, "")
	if want := "the bundle has the images of v4.0.3, and v4.0.9 was requested: " + strings.Join(missing[:3], ", ") + ", and 28 more"; f.Cause != want {
		t.Errorf("cause %q, want %q", f.Cause, want)
	}
	if len(f.Evidence) != 1 || !strings.Contains(f.Evidence[0], missing[30]) {
		t.Errorf("evidence %q", f.Evidence)
	}
	f = LackingImages("Bundle b lacks an image", "the bundle", have, []string{"other:v1"}, "")
	if f.Cause != "other:v1" || len(f.Evidence) > 0 {
		t.Errorf("one image: %q, %q", f.Cause, f.Evidence)
	}
}

func TestWriteImages(t *testing.T) {
	b := open(t, create(t))
	var out bytes.Buffer
	require.NoError(t, b.WriteImages(t.Context(), &out, []string{imageB}))
	idx, err := layout.ImageIndexFromPath(unpack(t, &out))
	require.NoError(t, err)
	m, err := idx.IndexManifest()
	require.NoError(t, err)
	if len(m.Manifests) != 1 || m.Manifests[0].Annotations[nameAnnotation] != imageB {
		t.Fatalf("index holds %+v", m.Manifests)
	}
	img, err := idx.Image(m.Manifests[0].Digest)
	require.NoError(t, err)
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	if err := b.WriteImages(t.Context(), io.Discard, []string{"registry.example/none:1"}); code(err) != CodeMissingImages {
		t.Errorf("got %v", err)
	}
}

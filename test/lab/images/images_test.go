// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	pinned "yunion.io/x/ocadm/internal/images"

	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/require"
)

// sample makes the same image in a new cache and from a new file.
func sample(t *testing.T, content string, at time.Time) v1.Image {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o700))
	require.NoError(t, os.Chtimes(file, at, at))
	l, err := entriesLayer(t.Context(), "sample", t.Logf, []entry{
		{Path: "opt/bin/program", Mode: executable, Source: file},
		{Path: "opt/bin/other", Link: "program"},
		{Path: "etc/text", Mode: 0o644, Text: "text"},
		{Path: "var/lib/data", Mode: 0o750, UID: 999},
	})
	require.NoError(t, err)
	img, err := assemble(image{Entrypoint: []string{"/opt/bin/program"}, User: "65534:65534"}, []v1.Layer{l})
	require.NoError(t, err)
	return img
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	require.NoError(t, err)
	return d.String()
}

func TestImagesAreDeterministic(t *testing.T) {
	first := digest(t, sample(t, "x", time.Unix(1, 0)))
	if second := digest(t, sample(t, "x", time.Unix(2, 0))); first != second {
		t.Errorf("the same content gives %s and %s", first, second)
	}
	if other := digest(t, sample(t, "y", time.Unix(1, 0))); first == other {
		t.Error("different content gives the same image")
	}
}

func TestLayerContent(t *testing.T) {
	layers, err := sample(t, "x", time.Unix(1, 0)).Layers()
	require.NoError(t, err)
	want := []string{"opt/", "opt/bin/", "opt/bin/program", "opt/bin/other -> program", "etc/", "etc/text", "var/", "var/lib/", "var/lib/data/"}
	if got := names(t, layers[0]); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTreeBecomesALayer(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "b/dir"), 0o750), os.WriteFile(filepath.Join(root, "b/file"), []byte("x"), 0o640),
		os.Link(filepath.Join(root, "b/file"), filepath.Join(root, "b/second")), os.Symlink("b/file", filepath.Join(root, "a")),
		os.Chtimes(filepath.Join(root, "b/file"), time.Now(), time.Now()),
	} {
		require.NoError(t, err)
	}
	l, err := treeLayer(t.Context(), "tree", "1", t.Logf, root)
	require.NoError(t, err)
	want := []string{"./", "./a -> b/file", "./b/", "./b/dir/", "./b/file", "./b/second -> ./b/file"}
	if got := names(t, l); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// names returns the paths in a layer, and the targets of links. It checks that everything has the same time.
func names(t *testing.T, l v1.Layer) []string {
	t.Helper()
	r, err := l.Uncompressed()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	var got []string
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		require.NoError(t, err)
		if !h.ModTime.Equal(epoch) {
			t.Errorf("%s has the time %s", h.Name, h.ModTime)
		}
		if h.Linkname != "" {
			h.Name += " -> " + h.Linkname
		}
		got = append(got, h.Name)
	}
}

func TestArchivesReplaceImages(t *testing.T) {
	const ref = Repository + "/keystone:v4.0.4"
	real, lab := sample(t, "real", time.Unix(1, 0)), sample(t, "lab", time.Unix(1, 0))
	dir := t.TempDir()
	tag, err := name.NewTag(ref)
	require.NoError(t, err)
	extra, err := name.NewTag("mariadb:99")
	require.NoError(t, err)
	require.NoError(t, tarball.MultiWriteToFile(filepath.Join(dir, "a.tar"), map[name.Tag]v1.Image{tag: real, extra: real}))
	made := map[string]v1.Image{ref: lab, "other": lab}
	require.NoError(t, addArchives(Options{ServiceImages: dir, Logf: t.Logf}, made))
	got, err := made[ref].ConfigName()
	require.NoError(t, err)
	want, err := real.ConfigName()
	require.NoError(t, err)
	if got != want {
		t.Errorf("%s is %s, want the archive's %s", ref, got, want)
	}
	if made["docker.io/library/mariadb:99"] == nil || digest(t, made["other"]) != digest(t, lab) {
		t.Error("the archive's other image is missing, or one that it does not have was changed")
	}
}

func TestEmptyArchiveDirectoryIsRefused(t *testing.T) {
	if err := addArchives(Options{ServiceImages: t.TempDir(), Logf: t.Logf}, nil); err == nil {
		t.Error("a directory without archives was accepted")
	}
}

// TestThirdPartyImagesExist compares the lab's images with the table that the installer and the operator read.
func TestThirdPartyImagesExist(t *testing.T) {
	table, err := pinned.Load()
	require.NoError(t, err)
	made := map[string]bool{}
	for _, i := range all(t) {
		made[i.Name] = true
	}
	for _, row := range table {
		ref, err := table.Ref(row.Name, "")
		require.NoError(t, err)
		if !made[ref] {
			t.Errorf("the lab does not make %s", ref)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range all(t) {
		if seen[i.Name] || !strings.Contains(i.Name, ":") || !strings.Contains(i.Name, "/") {
			t.Errorf("%s: twice, or without registry or tag", i.Name)
		}
		seen[i.Name] = true
	}
}

// all returns the images of a lab.
func all(t *testing.T) []image {
	t.Helper()
	services, err := cloud("v4.0.4", "fakecloud")
	require.NoError(t, err)
	return append(upstream(version.Kubernetes), services...)
}

// TestImagesOfTheCloudFollowTheCatalogue checks that the lab has the images of disabled components, of pods with several containers and those with
// their own tags, and no image that only the enterprise editions run.
func TestImagesOfTheCloudFollowTheCatalogue(t *testing.T) {
	made := map[string]image{}
	for _, i := range all(t) {
		made[strings.TrimPrefix(i.Name, Repository+"/")] = i
	}
	for _, want := range []string{"keystone:v4.0.4", "sdnagent:v4.0.4", "aiproxy:v4.0.4", "cloudmux:v4.0.4", "s3gateway:v4.0.4", "web:v4.0.4", "guacd:1.6.0",
		"telegraf-init:release-1.36-1", "host-image:v1.0.8", "etcd:3.5.12"} {
		if _, there := made[want]; !there {
			t.Errorf("there is no %s among %q", want, slices.Sorted(maps.Keys(made)))
		}
	}
	if _, there := made["meter:v4.0.4"]; there {
		t.Error("an image of the enterprise editions is made")
	}
	if got := made["aiproxy:v4.0.4"].Cmd; !slices.Equal(got, []string{"/opt/yunion/bin/aiproxy"}) {
		t.Errorf("an ordinary service runs %q", got)
	}
	if got := made["openvswitch:2.12.4-20260415"].Entrypoint; !slices.Equal(got, []string{"/start.sh"}) {
		t.Errorf("openvswitch runs %q", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/artifacts/artifactstest"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/test/require"
)

// The lab's builder makes its bundle from local programs and images. Downloaded from servers, they give the same content.
func TestSameAsTheLab(t *testing.T) {
	file := "../../../dist/ocadm.bundle"
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && os.Getenv("OCADM_TEST_REQUIRE") == "" || testing.Short() {
		t.Skip("make bundle has not been run in this checkout")
	}
	lab, err := bundle.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lab.Close() })
	want := lab.Contents()
	s := newSite(t, runtime.GOARCH)
	s.serveFiles(t, lab)
	var images []string
	for _, i := range want.Images {
		images = append(images, i.Name)
		ref, err := name.NewTag(i.Name)
		require.NoError(t, err)
		there, err := name.NewTag(s.host() + "/" + ref.RepositoryStr() + ":" + ref.TagStr())
		require.NoError(t, err)
		manifest, _ := lab.Image(i.Name)
		img, err := partial.CompressedToImage(bundled{lab, manifest})
		require.NoError(t, err)
		require.NoError(t, remote.Write(there, img))
	}
	o := s.options(t, []string{runtime.GOARCH}, images...)
	o.Kubernetes, o.Mirrors, o.Versions = want.Info.KubernetesVersion, Mirrors{"*": {s.URL}}, want.Info.Versions
	got := create(t, o).Contents()
	for i := range got.Files {
		got.Files[i].Origin = nil
	}
	for _, n := range []string{"containerd", "runc", "cni-plugins"} { // the lab records other versions of programs
		delete(got.Info.Versions, n)
		delete(want.Info.Versions, n)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-lab +downloaded):\n%s", d)
	}
	t.Logf("%d files and %d images are the same", len(got.Files), len(got.Images))
}

// serveFiles makes a site's downloads contain the files of a bundle.
func (s *site) serveFiles(t *testing.T, b *bundle.Bundle) {
	t.Helper()
	table, err := artifacts.Parse(artifacts.Embedded)
	require.NoError(t, err)
	read := func(name string) []byte {
		in, err := b.OpenFile(name)
		require.NoError(t, err)
		defer in.Close()
		raw, err := io.ReadAll(in)
		require.NoError(t, err)
		return raw
	}
	s.files = map[string][]byte{}
	for i, a := range table.Of(b.Contents().Info.KubernetesVersion, runtime.GOARCH, "") {
		members := map[string]string{}
		maps.Copy(members, a.Files)
		for _, f := range b.Contents().Files {
			if a.Dir != "" && path.Dir(f.Path) == a.Dir {
				members[path.Base(f.Path)] = f.Path
			}
		}
		var data []byte
		if a.File != "" {
			data = read(a.File)
		} else {
			data = archived(t, members, read)
		}
		s.files["/"+strings.TrimPrefix(a.Home, "https://")] = data
		table[i].SHA256 = map[string]map[string]string{a.Version: {runtime.GOARCH: artifactstest.Sum(data)}}
	}
	if s.table, err = yaml.Marshal(table); err != nil {
		t.Fatal(err)
	}
}

func archived(t *testing.T, members map[string]string, read func(string) []byte) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive")
	out, err := os.Create(file)
	require.NoError(t, err)
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	require.NoError(t, err)
	w := tar.NewWriter(z)
	for _, n := range slices.Sorted(maps.Keys(members)) {
		data := read(members[n])
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: n, Mode: 0o755, Size: int64(len(data))}))
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, errors.Join(w.Close(), z.Close(), out.Close()))
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return raw
}

// bundled is an image in a bundle.
type bundled struct {
	b *bundle.Bundle
	d v1.Descriptor
}

func (i bundled) read(h v1.Hash) ([]byte, error)      { return io.ReadAll(i.b.OpenBlob(h)) }
func (i bundled) RawManifest() ([]byte, error)        { return i.read(i.d.Digest) }
func (i bundled) MediaType() (types.MediaType, error) { return i.d.MediaType, nil }
func (i bundled) RawConfigFile() ([]byte, error) {
	m, err := partial.Manifest(i)
	if err != nil {
		return nil, err
	}
	return i.read(m.Config.Digest)
}

func (i bundled) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	m, err := partial.Manifest(i)
	if err != nil {
		return nil, err
	}
	for _, l := range m.Layers {
		if l.Digest == h {
			return bundledLayer{i.b, l}, nil
		}
	}
	return nil, fmt.Errorf("there is no layer %s", h)
}

type bundledLayer struct {
	b *bundle.Bundle
	d v1.Descriptor
}

func (l bundledLayer) Digest() (v1.Hash, error)            { return l.d.Digest, nil }
func (l bundledLayer) Size() (int64, error)                { return l.d.Size, nil }
func (l bundledLayer) MediaType() (types.MediaType, error) { return l.d.MediaType, nil }
func (l bundledLayer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(l.b.OpenBlob(l.d.Digest)), nil
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

// A killed process's leftovers are removed when the depot is opened again; what another process is writing is not.
func TestLeftovers(t *testing.T) {
	s := newStore(t)
	left := filepath.Join(s.tempDir(), "blob-1")
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	r, w := io.Pipe()
	stored := make(chan error)
	go func() { stored <- s.Put(t.Context(), hashOf(t, "whole"), 5, r) }()
	if _, err := io.WriteString(w, "wh"); err != nil { // from here on its temporary file exists
		t.Fatal(err)
	}
	reopen(t, s.dir)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover is there: %v", err)
	}
	if _, err := io.WriteString(w, "ole"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), <-stored); err != nil {
		t.Error(err)
	}
}

// After filling from a bundle for two platforms, the depot has the files of both, and each image as an index of both.
func TestFillForSeveralPlatforms(t *testing.T) {
	const image = "registry.example/a:v1"
	var spec bundle.Spec
	for _, arch := range []string{"amd64", "arm64"} {
		spec.Platforms = append(spec.Platforms, bundle.Platform{
			Info: bundle.Info{OS: "linux", Arch: arch, KubernetesVersion: "v1.36.3"},
			Files: []bundle.FileSource{{Path: "/usr/local/bin/kubelet", Mode: 0o755, Open: func() (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader("kubelet for " + arch)), nil
			}}},
			Images: []bundle.ImageSource{{Name: image, Image: imagetest.Image(t, arch, imagetest.Layer(t, 1))}},
		})
	}
	file := filepath.Join(t.TempDir(), "test.bundle")
	require.NoError(t, bundle.Build(t.Context(), file, spec))
	b, err := bundle.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	s := newStore(t)
	var done, total int64
	for range 2 {
		if err := s.Fill(t.Context(), "v1", b, func(d, n int64) { done, total = d, n }); err != nil || done == 0 || done != total {
			t.Fatalf("%v at %d of %d", err, done, total)
		}
	}
	c, err := s.Contents(t.Context())
	require.NoError(t, err)
	for _, arch := range []string{"amd64", "arm64"} {
		if got, err := s.text(t, c.Files["linux/"+arch+"/usr/local/bin/kubelet"].Digest); got != "kubelet for "+arch {
			t.Errorf("%q, %v", got, err)
		}
	}
	raw, err := s.text(t, c.Images[image].Digest)
	require.NoError(t, err)
	var index v1.IndexManifest
	if err := json.Unmarshal([]byte(raw), &index); err != nil || len(index.Manifests) != 2 || !c.Images[image].MediaType.IsIndex() {
		t.Fatalf("%v: %s", err, raw)
	}
	for _, m := range index.Manifests {
		if !s.has(m.Digest) || m.Platform == nil || len(m.Annotations) > 0 {
			t.Errorf("%+v", m)
		}
	}
	if _, err := s.collect(t.Context(), []string{"v1"}, 0); err != nil || !s.has(index.Manifests[1].Digest) {
		t.Errorf("the manifest of a platform is garbage: %v", err)
	}
	// Without the manifest of a platform, the root is incomplete, and another Fill repairs it.
	lost, err := s.blobFile(index.Manifests[1].Digest)
	if err = errors.Join(err, os.Remove(lost)); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Complete(t.Context(), "v1"); done || err != nil {
		t.Errorf("without the manifest of a platform: complete %t, %v", done, err)
	}
	if err := s.Fill(t.Context(), "v1", b, nil); err != nil || !s.has(index.Manifests[1].Digest) {
		t.Errorf("filled again: %v", err)
	}
}

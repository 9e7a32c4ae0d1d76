// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

// The same archive is readable as an OCI layout and as a docker archive.
func TestWriteImage(t *testing.T) {
	img := imagetest.Image(t, "arm64", imagetest.Layer(t, 1), imagetest.Layer(t, 2))
	for full, docker := range map[string]string{imageA: imageA, "docker.io/you/a:v1": "you/a:v1"} {
		var out, again bytes.Buffer
		for _, w := range []io.Writer{&out, &again} {
			require.NoError(t, WriteImage(t.Context(), w, ImageSource{Name: full, Image: img}))
		}
		if !bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Error("the same image gave different archives")
		}
		tag, err := name.NewTag(docker)
		require.NoError(t, err)
		loaded, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }, &tag)
		require.NoError(t, err)
		want, _ := img.ConfigName()
		if got, err := loaded.ConfigName(); err != nil || got != want {
			t.Errorf("docker would load %s, %v; want %s", got, err, want)
		}
		idx, err := layout.ImageIndexFromPath(unpack(t, &out))
		require.NoError(t, err)
		m, err := idx.IndexManifest()
		if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Annotations[nameAnnotation] != full || m.Manifests[0].Platform.Architecture != "arm64" {
			t.Fatalf("index holds %+v, %v", m, err)
		}
		written, err := idx.Image(m.Manifests[0].Digest)
		require.NoError(t, err)
		if err := validate.Image(written); err != nil {
			t.Error(err)
		}
	}
}

func unpack(t *testing.T, in io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		require.NoError(t, err)
		data, _ := io.ReadAll(r)
		file := filepath.Join(dir, h.Name)
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644)))
	}
}

func TestWriteImageFails(t *testing.T) {
	img := imagetest.Image(t, "amd64", imagetest.Layer(t, 1))
	if err := WriteImage(t.Context(), io.Discard, ImageSource{Name: "no registry", Image: img}); err == nil || !strings.Contains(err.Error(), "checking its name") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WriteImage(ctx, io.Discard, ImageSource{Name: imageA, Image: img}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

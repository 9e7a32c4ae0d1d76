// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"os"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

// Roots that have an image for different architectures are served as one index. The latest wins for its architecture.
func TestContentsOfSeveralArchitectures(t *testing.T) {
	const image = "registry.example/ocadm:v1"
	s := newStore(t)
	add := func(root, arch string, layer int64) v1.Hash {
		t.Helper()
		d, err := s.AddImage(t.Context(), imagetest.Image(t, arch, imagetest.Layer(t, layer)))
		if err == nil {
			err = s.SetRoot(t.Context(), Root{Name: root, Images: map[string]v1.Descriptor{image: d}})
		}
		require.NoError(t, err)
		return d.Digest
	}
	served := func() (v1.Descriptor, map[string]v1.Hash) {
		t.Helper()
		c, err := s.Contents(t.Context())
		require.NoError(t, err)
		d := c.Images[image]
		if !d.MediaType.IsIndex() {
			return d, nil
		}
		var index v1.IndexManifest
		require.NoError(t, s.read(t.Context(), d.Digest, &index))
		out := map[string]v1.Hash{}
		for _, m := range index.Manifests {
			out[m.Platform.Architecture] = m.Digest
			if got, ok := s.manifest(t.Context(), c, m.Digest); !ok || got.MediaType != m.MediaType {
				t.Errorf("%s is not served", m.Digest)
			}
		}
		return d, out
	}
	old := add("a", "amd64", 1)
	if d, _ := served(); d.Digest != old {
		t.Errorf("one architecture: %v", d)
	}
	amd := add("b", "amd64", 2)
	if d, _ := served(); d.Digest != amd {
		t.Errorf("a later one: %v", d)
	}
	arm := add("c", "arm64", 3)
	first, both := served()
	if len(both) != 2 || both["amd64"] != amd || both["arm64"] != arm {
		t.Errorf("two architectures: %v", both)
	}
	// The index is in no root. If it is lost, it is made again, and another process makes the same one.
	if _, err := s.collect(t.Context(), []string{"b", "c"}, -time.Hour); err != nil {
		t.Fatal(err)
	}
	if again, both := served(); again.Digest != first.Digest || len(both) != 2 {
		t.Errorf("made again: %v, before %v", again, first)
	}
	file, err := s.blobFile(first.Digest)
	if err == nil {
		err = os.Remove(file)
	}
	require.NoError(t, err)
	if c, err := reopen(t, s.dir).Contents(t.Context()); err != nil || c.Images[image].Digest != first.Digest {
		t.Errorf("in another process: %v, %v", c.Images, err)
	}
	// With a full disk, the latest is served.
	full := &Store{dir: s.dir, reserve: 1 << 62, sound: map[v1.Hash]stamp{}, roots: map[string]loaded{}}
	require.NoError(t, os.Remove(file))
	if c, err := full.Contents(t.Context()); err != nil || c.Images[image].Digest != arm {
		t.Errorf("without space: %v, %v", c.Images, err)
	}
}

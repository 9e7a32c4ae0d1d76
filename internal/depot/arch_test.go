// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"os"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/test/require"
)

// Images that a node pulled for its architecture never replace a bundle's for several, however late they were stored.
func TestNodeRootCountsLast(t *testing.T) {
	s := newStore(t)
	ofBundle, ofNode := v1.Descriptor{Digest: s.put(t, "bundle"), Size: 6}, v1.Descriptor{Digest: s.put(t, "node"), Size: 4}
	for i, r := range []Root{
		{Name: "bundle-1", Images: map[string]v1.Descriptor{"both": ofBundle}},
		{Name: NodeRoot, Images: map[string]v1.Descriptor{"both": ofNode, "alone": ofNode}},
		{Name: "ocadm-v1", Images: map[string]v1.Descriptor{"ocadm": ofBundle}},
	} {
		r.Since = time.Unix(int64(i), 0)
		require.NoError(t, s.SetRoot(t.Context(), r))
	}
	c, err := s.Contents(t.Context())
	if err != nil || len(c.Images) != 3 || c.Images["both"].Digest != ofBundle.Digest || c.Images["alone"].Digest != ofNode.Digest {
		t.Errorf("%v, %v", c.Images, err)
	}
}

// A manifest without platform has the architecture of its config. A lost one is not omitted: a client that needs the image learns why it fails.
func TestArchitectureOfTheConfig(t *testing.T) {
	store := newStore(t)
	images := map[string]v1.Descriptor{}
	for _, arch := range []string{"amd64", "arm64", "lost"} {
		d, err := store.AddImage(t.Context(), imagetest.Image(t, arch, imagetest.Layer(t, 1)))
		require.NoError(t, err)
		images[arch] = d
	}
	require.NoError(t, store.SetRoot(t.Context(), Root{Name: NodeRoot, Images: images}))
	file, err := store.blobFile(images["lost"].Digest)
	if err == nil {
		err = os.Remove(file)
	}
	require.NoError(t, err)
	s := listen(t, store, nil)
	r, err := NewClient(s.URL, goodToken, fetch.Fetcher{Client: s.browser(nil)}).Remote(t.Context(), "arm64")
	if err != nil || len(r.manifests) != 2 || r.manifests["arm64"].Size == 0 || r.manifests["lost"].Size == 0 {
		t.Errorf("%v, %v", r, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle/imagetest"
	"yunion.io/x/ocadm/test/require"
)

// Roots share blobs, so the sum of their sizes exceeds the space used.
func TestStatus(t *testing.T) {
	s := filled(t)
	roots, err := s.Roots()
	require.NoError(t, err)
	copied := roots[0]
	copied.Name, copied.Since = "v2", time.Time{}
	require.NoError(t, s.SetRoot(t.Context(), copied))
	st, err := s.Status(t.Context())
	if err != nil || len(st.Roots) != 2 || st.Free == 0 || st.Roots[0].Name != "v2" {
		t.Fatalf("%+v, %v", st, err)
	}
	for _, r := range st.Roots {
		if !r.Complete || r.Size != st.Used || r.Images != 2 || r.Files != 1 || r.Since.IsZero() {
			t.Errorf("%+v of %d bytes", r, st.Used)
		}
	}
	file, err := s.blobFile(copied.Images[imageA].Digest)
	if err == nil {
		err = os.Remove(file)
	}
	require.NoError(t, err)
	if st, err = s.Status(t.Context()); err != nil || st.Roots[0].Complete {
		t.Errorf("without a manifest: %+v, %v", st, err)
	}
	if done, err := s.Complete(t.Context(), "v2"); done || err != nil {
		t.Errorf("without a manifest: complete %v, %v", done, err)
	}
}

// The latest root of each series is kept, and the latest root with each image in use. A root without a series is kept while it is used.
func TestUnused(t *testing.T) {
	s := newStore(t)
	if unused, kept, err := s.Unused(t.Context(), Cluster{}); unused == nil || kept == nil || err != nil {
		t.Errorf("of an empty depot, scripts get null in place of a list: %v, %v, %v", unused, kept, err)
	}
	d := v1.Descriptor{Digest: s.put(t, "manifest"), Size: 8}
	pinned := v1.Descriptor{Digest: s.put(t, "pinned"), Size: 6}
	for i, r := range []struct {
		name, series string
		images       map[string]v1.Descriptor
	}{
		{"bundle-1", "bundle", map[string]v1.Descriptor{"old": d, "pause": d}}, {"bundle-2", "bundle", map[string]v1.Descriptor{"used": d, "pause": d}},
		{"bundle-3", "bundle", map[string]v1.Descriptor{"by digest": pinned}}, {"bundle-4", "bundle", map[string]v1.Descriptor{"new": d, "pause": d}},
		{"ocadm-v1", "ocadm", map[string]v1.Descriptor{"ocadm:v1": d}}, {"ocadm-v2", "ocadm", map[string]v1.Descriptor{"ocadm:v2": d}},
		{"node-1", "node 1", map[string]v1.Descriptor{"alone": d}}, {"one", "", map[string]v1.Descriptor{"single": d}}, {"two", "", map[string]v1.Descriptor{"used alone": d}},
	} {
		require.NoError(t, s.SetRoot(t.Context(), Root{Name: r.name, Series: r.series, Since: time.Unix(int64(-i), 0), Images: r.images}))
	}
	unused, kept, err := s.Unused(t.Context(), Cluster{Uses: func(i string) bool {
		return i == "used" || i == "pause" || i == "used alone" || i == pinned.Digest.String()
	}})
	slices.Sort(kept)
	slices.Sort(unused)
	if err != nil || !slices.Equal(unused, []string{"bundle-1", "ocadm-v1", "one"}) ||
		!slices.Equal(kept, []string{"bundle-2", "bundle-3", "bundle-4", "node-1", "ocadm-v2", "two"}) {
		t.Errorf("unused %q, kept %q, %v", unused, kept, err)
	}
}

// Bundles for two architectures have the same image names: while an image is in use, the root of each architecture is kept.
func TestUnusedOfSeveralArchitectures(t *testing.T) {
	const image = "registry.example/region:v1"
	s := newStore(t)
	for _, version := range []string{"v1", "v2"} {
		for _, arch := range []string{"amd64", "arm64"} {
			d, err := s.AddImage(t.Context(), imagetest.Image(t, arch, imagetest.Layer(t, int64(len(version+arch)))))
			require.NoError(t, err)
			r := Root{Name: "bundle-" + version + "-" + arch, Series: BundleSeries("linux/" + arch),
				Images: map[string]v1.Descriptor{"registry.example/region:" + version: d}}
			require.NoError(t, s.SetRoot(t.Context(), r))
		}
	}
	if _, _, _, err := s.Prune(t.Context(), Cluster{Uses: func(i string) bool { return i == image }}, 0); err != nil {
		t.Fatal(err)
	}
	if has, err := s.Architectures(t.Context(), image); err != nil || len(has) != 2 {
		t.Errorf("the image in use is left for %q, %v", has, err)
	}
}

// The content of a control-plane node that has left is removed, unless nothing else has it: an image in use, or programs for an architecture.
func TestUnusedOfNodesThatLeft(t *testing.T) {
	s := newStore(t)
	d := v1.Descriptor{Digest: s.put(t, "manifest"), Size: 8}
	f := File{Digest: d.Digest, Size: 8}
	for _, r := range []Root{
		{Name: "node-stays", Files: map[string]File{"linux/amd64/kubelet": f}},
		{Name: "node-left", Files: map[string]File{"linux/amd64/kubelet": f}, Images: map[string]v1.Descriptor{"any": d}},
		{Name: "node-arm", Files: map[string]File{"linux/arm64/kubelet": f}},
		{Name: "node-used", Images: map[string]v1.Descriptor{"used": d}},
		{Name: "bundle-1", Images: map[string]v1.Descriptor{"other": d}},
	} {
		node, ok := strings.CutPrefix(r.Name, "node-")
		if r.Series = NodeSeries(node); !ok {
			r.Series = "bundle"
		}
		require.NoError(t, s.SetRoot(t.Context(), r))
	}
	c := Cluster{Uses: func(image string) bool { return image == "used" }, Left: func(node string) bool { return node != "stays" }}
	unused, kept, err := s.Unused(t.Context(), c)
	if slices.Sort(kept); err != nil || !slices.Equal(unused, []string{"node-left"}) || !slices.Equal(kept, []string{"bundle-1", "node-arm", "node-stays", "node-used"}) {
		t.Errorf("unused %q, kept %q, %v", unused, kept, err)
	}
}

// Roots stored by an earlier release have no version: newer roots take precedence, and they are removed like earlier versions of a series.
func TestEarlierRoots(t *testing.T) {
	s := newStore(t)
	d := v1.Descriptor{Digest: s.put(t, "manifest"), Size: 8}
	for i, name := range []string{"node", "bundle-1", "bundle-2", "ocadm-v1"} {
		raw, err := json.Marshal(Root{Name: name, Since: time.Unix(int64(i), 0), Images: map[string]v1.Descriptor{name: d}})
		if err == nil {
			err = os.WriteFile(s.rootFile(name), raw, 0o600)
		}
		require.NoError(t, err)
	}
	require.NoError(t, s.SetRoot(t.Context(), Root{Name: "ocadm-v2", Since: time.Unix(-1, 0), Series: ProgramSeries(runtime.GOARCH), Images: map[string]v1.Descriptor{"new": d}}))
	var names []string
	roots, err := s.Roots()
	for _, r := range roots {
		names = append(names, r.Name)
	}
	if want := []string{"ocadm-v2", "ocadm-v1", "bundle-2", "bundle-1", "node"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("roots %q, %v; want %q", names, err, want)
	}
	unused, _, err := s.Unused(t.Context(), Cluster{Uses: func(string) bool { return false }})
	if want := []string{"ocadm-v1", "bundle-1"}; err != nil || !slices.Equal(unused, want) {
		t.Errorf("unused %q, %v; want %q", unused, err, want)
	}
}

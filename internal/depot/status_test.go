// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"os"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Roots share blobs, so the sizes of roots add up to more than is used.
func TestStatus(t *testing.T) {
	s := filled(t)
	roots, err := s.Roots()
	if err != nil {
		t.Fatal(err)
	}
	copied := roots[0]
	copied.Name, copied.Since = "v2", time.Time{}
	if err := s.SetRoot(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if st, err = s.Status(t.Context()); err != nil || st.Roots[0].Complete {
		t.Errorf("without a manifest: %+v, %v", st, err)
	}
	if done, err := s.Complete(t.Context(), "v2"); done || err != nil {
		t.Errorf("without a manifest: complete %v, %v", done, err)
	}
}

// Of each kind, the latest root stays, and of each image in use the latest root that has it.
func TestUnused(t *testing.T) {
	s := newStore(t)
	d := v1.Descriptor{Digest: s.put(t, "manifest"), Size: 8}
	pinned := v1.Descriptor{Digest: s.put(t, "pinned"), Size: 6}
	for i, r := range []struct {
		name   string
		images map[string]v1.Descriptor
	}{
		{"bundle-1", map[string]v1.Descriptor{"old": d, "pause": d}}, {"bundle-2", map[string]v1.Descriptor{"used": d, "pause": d}},
		{"bundle-3", map[string]v1.Descriptor{"by digest": pinned}}, {"bundle-4", map[string]v1.Descriptor{"new": d, "pause": d}},
		{"ocadm-v1", map[string]v1.Descriptor{"ocadm:v1": d}}, {"ocadm-v2", map[string]v1.Descriptor{"ocadm:v2": d}},
		{"node", map[string]v1.Descriptor{"alone": d}},
	} {
		if err := s.SetRoot(t.Context(), Root{Name: r.name, Since: time.Unix(int64(i), 0), Images: r.images}); err != nil {
			t.Fatal(err)
		}
	}
	unused, kept, err := s.Unused(t.Context(), func(i string) bool { return i == "used" || i == "pause" || i == pinned.Digest.String() })
	slices.Sort(kept)
	slices.Sort(unused)
	if err != nil || !slices.Equal(unused, []string{"bundle-1", "ocadm-v1"}) ||
		!slices.Equal(kept, []string{"bundle-2", "bundle-3", "bundle-4", "node", "ocadm-v2"}) {
		t.Errorf("unused %q, kept %q, %v", unused, kept, err)
	}
}

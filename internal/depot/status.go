// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Status is what a depot holds. Sizes are in bytes.
type Status struct {
	Directory string       `json:"directory"`
	Roots     []RootStatus `json:"roots"`
	// Used is what the blobs take on the disk, Free what the disk has left, and Reserve how much of it the depot does not use.
	Used    int64 `json:"used"`
	Free    int64 `json:"free"`
	Reserve int64 `json:"reserve"`
}

// RootStatus is one root. Roots share blobs, so their sizes add up to more than is used.
type RootStatus struct {
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Images   int       `json:"images"`
	Files    int       `json:"files"`
	Size     int64     `json:"size"`
	Complete bool      `json:"complete"`
}

// Status looks at the depot. It reads manifests, but no layers.
func (s *Store) Status(ctx context.Context) (Status, error) {
	out := Status{Directory: s.dir, Reserve: s.reserve, Roots: []RootStatus{}}
	roots, err := s.Roots()
	if err != nil {
		return out, err
	}
	for _, r := range roots {
		_, lacks := s.lacks(ctx, r)
		one := RootStatus{Name: r.Name, Since: r.Since, Images: len(r.Images), Files: len(r.Files), Complete: !lacks}
		for size := range maps.Values(s.reach(ctx, r)) {
			one.Size += size
		}
		out.Roots = append(out.Roots, one)
	}
	entries, err := os.ReadDir(s.blobDir())
	if err != nil {
		return out, fmt.Errorf("looking at the blobs of the depot: %w", err)
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil { // else it has gone in the meantime
			out.Used += st.Size()
		}
	}
	out.Free, err = s.Free()
	return out, err
}

// Unused are the names of the roots that the cluster does not need. It needs the latest root of each series, and of each image in use the first
// root that has it, because later ones do not serve it. used gets full names and digests of images.
func (s *Store) Unused(ctx context.Context, used func(image string) bool) (unused, kept []string, err error) {
	roots, err := s.Roots()
	if err != nil {
		return nil, nil, err
	}
	latest, provided := map[string]bool{}, map[string]bool{}
	for _, r := range roots {
		needed := r.series() != "" && !latest[r.series()]
		latest[r.series()] = true
		for image := range s.references(ctx, r) {
			needed = needed || used(image) && !provided[image]
			provided[image] = true
		}
		if needed {
			kept = append(kept, r.Name)
		} else {
			unused = append(unused, r.Name)
		}
	}
	return unused, kept, nil
}

// references are what a workload may name an image of the root by: its full name, and the digests of its index and manifests.
func (s *Store) references(ctx context.Context, r Root) map[string]bool {
	out := map[string]bool{}
	for image, d := range r.Images {
		out[image] = true
		below := map[v1.Hash]int64{}
		s.below(ctx, d, below)
		for h := range below { // also layers, which no workload names
			out[h.String()] = true
		}
	}
	return out
}

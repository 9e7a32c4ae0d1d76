// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/lists"
)

// Status describes the content of a depot. Sizes are in bytes.
type Status struct {
	Directory string       `json:"directory"`
	Roots     []RootStatus `json:"roots"`
	// Used is the disk space of the blobs, Free the remaining disk space, and Reserve how much of it the depot does not use.
	Used    int64 `json:"used"`
	Free    int64 `json:"free"`
	Reserve int64 `json:"reserve"`
	// Wanted lists images still to be copied from their registries.
	Wanted []Want `json:"wanted"`
}

// RootStatus describes a root. Roots share blobs, so the sum of their sizes exceeds the space used.
type RootStatus struct {
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Images   int       `json:"images"`
	Files    int       `json:"files"`
	Size     int64     `json:"size"`
	Complete bool      `json:"complete"`
	// Image is the image copied from its registry for which the root was made. Since is then when a node last asked for it, to the day.
	Image string `json:"image,omitempty"`
}

// Status inspects the depot. It reads manifests, but no layers.
func (s *Store) Status(ctx context.Context) (Status, error) {
	out := Status{Directory: s.dir, Reserve: s.reserve, Roots: []RootStatus{}, Wanted: []Want{}}
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
		if r.pulled() {
			one.Image = r.image()
		}
		out.Roots = append(out.Roots, one)
	}
	wants, err := s.Wants()
	if err != nil {
		return out, err
	}
	out.Wanted = append(out.Wanted, wants...)
	entries, err := os.ReadDir(s.blobDir())
	if err != nil {
		return out, fmt.Errorf("looking at the blobs of the depot: %w", err)
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil { // otherwise it was removed meanwhile
			out.Used += st.Size()
		}
	}
	out.Free, err = s.Free()
	return out, err
}

// Unused returns the names of the roots that the cluster does not need, and of those that it needs. It needs the latest root of each series; for each
// image in use and each of its platforms, the first root that has it, because later ones do not serve it; and copied images that nodes have asked for
// in the last days. Of a control-plane node that has left the cluster, it needs only what no other root has: programs for an architecture, and images
// in use.
func (s *Store) Unused(ctx context.Context, c Cluster) (unused, kept []string, err error) {
	roots, err := s.Roots()
	if err != nil {
		return nil, nil, err
	}
	left := func(r Root) bool {
		node, ok := strings.CutPrefix(r.series(), NodeSeries(""))
		return ok && c.Left != nil && c.Left(node)
	}
	slices.SortStableFunc(roots, func(a, b Root) int { return lists.TrueFirst(left(b), left(a)) })
	unused, kept, latest, provided := []string{}, []string{}, map[string]bool{}, map[string]bool{}
	for _, r := range roots {
		needed := r.pulled() && time.Since(r.Since) < keptFor
		if left(r) {
			for file := range r.Files {
				needed = needed || !provided[file]
			}
		} else {
			needed = needed || r.series() != "" && !latest[r.series()]
			latest[r.series()] = true
		}
		for image, parts := range s.references(ctx, r) {
			for _, part := range parts {
				needed = needed || c.Uses(image) && !provided[part]
				provided[part] = true
			}
		}
		if !needed {
			unused = append(unused, r.Name)
			continue
		}
		kept = append(kept, r.Name)
		for file := range r.Files {
			provided[file] = true
		}
	}
	return unused, kept, nil
}

// Cluster determines which roots a cluster needs.
type Cluster struct {
	// Uses reports whether an image is in use, given its full name or a digest.
	Uses func(image string) bool
	// Left, which may be nil, reports whether the cluster no longer has a node of this name.
	Left func(node string) bool
}

// references returns the names that a workload may use for an image of the root: its full name, and the digests of its index and manifests. For each
// it also returns what the root provides under that name: a full name may stand for an image of another architecture in another root.
func (s *Store) references(ctx context.Context, r Root) map[string][]string {
	out := map[string][]string{}
	for image, d := range r.Images {
		for _, m := range s.platforms(ctx, d) {
			out[image] = append(out[image], image+" "+m.Platform.String())
		}
		if len(out[image]) == 0 { // its platform is unknown
			out[image] = []string{image}
		}
		below := map[v1.Hash]int64{}
		s.below(ctx, d, false, below)
		for h := range below { // includes layers, which no workload names
			out[h.String()] = []string{h.String()}
		}
	}
	return out
}

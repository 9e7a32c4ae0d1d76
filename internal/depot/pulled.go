// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// PulledRoot is the name prefix of the roots of images that the depot copied from registries because nodes asked for them. Each holds one image. Any
// other root with an image of the same name takes precedence.
const PulledRoot = "pulled"

const (
	// askedEvery is the precision with which a copied image's root records the last request of a node.
	askedEvery = 24 * time.Hour
	// keptFor is how long an image is kept after the last request of a node, even if no workload names it any more. Then Prune removes it.
	keptFor = 7 * 24 * time.Hour
)

func (r Root) pulled() bool { return strings.HasPrefix(r.Name, PulledRoot+"-") }

func (r Root) image() string {
	for name := range r.Images {
		return name
	}
	return ""
}

var notInRoots = regexp.MustCompile(`[^0-9A-Za-z]`)

// pulledName returns the root name for a copied image: a recognisable name and a unique digest.
func pulledName(image string) string {
	const recognised, digits = 80, 6
	clean := notInRoots.ReplaceAllString(image[strings.IndexByte(image, '/')+1:], ".")
	clean = strings.Trim(clean[:min(len(clean), recognised)], ".")
	sum := sha256.Sum256([]byte(image))
	return PulledRoot + "-" + clean + "-" + hex.EncodeToString(sum[:digits])
}

// setPulled stores the root of a copied image and sets the time of its last request to now.
func (s *Store) setPulled(ctx context.Context, image string, d v1.Descriptor) error {
	return s.Storing(ctx, func() error {
		return s.SetRoot(ctx, Root{Name: pulledName(image), Images: map[string]v1.Descriptor{image: d}})
	})
}

// askedFor records that a node has asked for a copied image. The root carries this to the depots of other control-plane nodes.
func (s *Store) askedFor(ctx context.Context, root string, now time.Time) error {
	r, err := s.Root(root)
	if err != nil || r.Name == "" || now.Sub(r.Since) < askedEvery {
		return err
	}
	return s.setPulled(ctx, r.image(), r.Images[r.image()])
}

// indexWith returns the root of a copied image whose index names a manifest, an empty one if there is none.
func (s *Store) indexWith(ctx context.Context, manifest v1.Hash) (Root, error) {
	roots, err := s.Roots()
	if err != nil {
		return Root{}, err
	}
	for _, r := range roots {
		if !r.pulled() {
			continue
		}
		if _, there := s.named(ctx, r.Images[r.image()], manifest); there {
			return r, nil
		}
	}
	return Root{}, nil
}

// copyShare is the percentage of a disk that copies of images leave free: slightly above the 5 at which the kubelet starts to remove images
// (imageGCHighThresholdPercent, package kubernetes).
const copyShare = 6

// copyFloor returns how many bytes copies of images leave free. Bundles may use more of the disk, because users asked for them.
func (s *Store) copyFloor() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0, err
	}
	return max(2*s.reserve, int64(st.Blocks)*st.Bsize/100*copyShare), nil //nolint:gosec // no disk has 2^63 blocks
}

// roomToCopy returns an error if a copy of size bytes would leave less than the floor free.
func (s *Store) roomToCopy(size int64) error {
	free, err := s.Free()
	if err != nil {
		return err
	}
	floor, err := s.copyFloor()
	if err == nil && free-size < floor {
		return s.noSpace("%d MiB are free, and copies of images leave %d MiB free", free>>20, floor>>20)
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// PulledRoot begins the names of the roots of images that the depot has copied from their registries, because nodes asked for them. Each has one
// image. Where another root has an image of the same name, they do not count.
const PulledRoot = "pulled"

const (
	// askedEvery is how exactly a root of a copied image notes when a node asked for it last.
	askedEvery = 24 * time.Hour
	// keptFor is how long an image that nodes ask for stays, also if no workload names it any more. Prune removes it later.
	keptFor = 7 * 24 * time.Hour
)

func (r Root) pulled() bool { return strings.HasPrefix(r.Name, PulledRoot+"-") }

// image is the name of the only image of a root.
func (r Root) image() string {
	for name := range r.Images {
		return name
	}
	return ""
}

// pulledName is the root of a copied image: a name that people recognise, and a digest that distinguishes it.
func pulledName(image string) string {
	const recognised, digits = 80, 6
	clean := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '.'
	}, image[strings.IndexByte(image, '/')+1:])
	clean = strings.Trim(clean[:min(len(clean), recognised)], ".")
	sum := sha256.Sum256([]byte(image))
	return PulledRoot + "-" + clean + "-" + hex.EncodeToString(sum[:digits])
}

// setPulled stores the root of a copied image, as one that a node has just asked for.
func (s *Store) setPulled(ctx context.Context, image string, d v1.Descriptor) error {
	return s.Storing(ctx, func() error {
		return s.SetRoot(ctx, Root{Name: pulledName(image), Images: map[string]v1.Descriptor{image: d}})
	})
}

// askedFor notes that a node has asked for a copied image. The depots of other control-plane nodes learn it with the root.
func (s *Store) askedFor(ctx context.Context, root string, now time.Time) error {
	r, err := s.Root(root)
	if err != nil || r.Name == "" || now.Sub(r.Since) < askedEvery {
		return err
	}
	return s.setPulled(ctx, r.image(), r.Images[r.image()])
}

// indexWith is the root of a copied image whose index names a manifest. Where the index is that of another root, it is empty.
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

// copyShare is the part of a disk, in hundredths, that copies of images leave free: a little more than the 5 at which the kubelet begins to
// remove images (imageGCHighThresholdPercent, package kubernetes).
const copyShare = 6

// copyFloor is how many bytes copies of images leave free. Bundles may use more of the disk: users asked for those.
func (s *Store) copyFloor() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0, err
	}
	return max(2*s.reserve, int64(st.Blocks)*st.Bsize/100*copyShare), nil //nolint:gosec // no disk has 2^63 blocks
}

// roomToCopy fails if a copy of size bytes would leave less free than the floor.
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

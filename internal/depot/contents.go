// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/lists"
)

// joined is the combined contents of all roots in one state.
type joined struct {
	state    string
	contents Root
	// indexes holds indexes that belong to no root: those of images that come from several roots, each for another architecture.
	indexes map[v1.Hash][]byte
	// pulled holds the roots of copied images, by image name, for names that no other root has.
	pulled map[string]string
}

// Contents returns the names of all roots. If roots differ, the first in the order of Roots that has the image for an architecture wins. Callers must
// not change the result.
func (s *Store) Contents(ctx context.Context) (Root, error) {
	j, err := s.joined(ctx)
	return j.contents, err
}

func (s *Store) joined(ctx context.Context) (joined, error) {
	roots, state, err := s.ranked()
	if err != nil {
		return joined{}, err
	}
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last.state != state || !s.hasAll(maps.Keys(last.indexes)) {
		last = s.join(ctx, roots)
		last.state = state
		s.mu.Lock()
		s.last = last
		s.mu.Unlock()
	}
	return last, nil
}

func (s *Store) join(ctx context.Context, roots []Root) joined {
	out := joined{contents: Root{Images: map[string]v1.Descriptor{}, Files: map[string]File{}}, indexes: map[v1.Hash][]byte{}, pulled: map[string]string{}}
	images := map[string][]v1.Descriptor{}
	for _, r := range roots {
		for name, d := range r.Images {
			if r.pulled() && len(images[name]) == 0 {
				out.pulled[name] = r.Name
			}
			if !slices.ContainsFunc(images[name], func(o v1.Descriptor) bool { return o.Digest == d.Digest }) {
				images[name] = append(images[name], d)
			}
		}
	}
	for _, r := range slices.Backward(roots) {
		maps.Copy(out.contents.Files, r.Files)
	}
	for name, list := range images {
		d, raw, err := s.joinImage(ctx, list)
		if err != nil { // the disk may be full
			slog.Warn("the depot serves an image for one architecture only", "image", name, "err", err)
			d, raw = list[0], nil
		}
		if out.contents.Images[name] = d; raw != nil {
			out.indexes[d.Digest] = raw
		}
	}
	return out
}

// joinImage returns the first of the manifests or indexes of an image, unless others have it for further architectures: then it stores an index of
// all.
func (s *Store) joinImage(ctx context.Context, list []v1.Descriptor) (v1.Descriptor, []byte, error) {
	var all []v1.Descriptor
	joins := false
	for i, d := range list {
		if len(list) == 1 {
			break // the usual case: there is nothing to read
		}
		for _, m := range s.platforms(ctx, d) {
			if !slices.ContainsFunc(all, func(o v1.Descriptor) bool { return o.Platform.Equals(*m.Platform) }) {
				all = append(all, m)
				joins = joins || i > 0
			}
		}
		if i == 0 && len(all) == 0 {
			break // its platform is unknown
		}
	}
	if !joins {
		return list[0], nil, nil
	}
	slices.SortFunc(all, func(a, b v1.Descriptor) int { return cmp.Compare(a.Platform.String(), b.Platform.String()) })
	return s.putIndex(ctx, all)
}

// platforms returns the manifests below a manifest or index that the store has, each with its platform.
func (s *Store) platforms(ctx context.Context, d v1.Descriptor) (out []v1.Descriptor) {
	var m manifests
	if s.read(ctx, d.Digest, &m) != nil {
		return nil
	}
	if d.MediaType.IsIndex() {
		return slices.DeleteFunc(m.Manifests, func(child v1.Descriptor) bool { return child.Platform == nil || !s.has(child.Digest) })
	}
	if d.Platform == nil {
		var config v1.Platform // an image's configuration has the same field names
		if s.read(ctx, m.Config.Digest, &config) != nil || config.Architecture == "" {
			return nil
		}
		d.Platform = &v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
	}
	return []v1.Descriptor{d}
}

// Architectures returns the architectures, named as in Go, for which the depot has an image.
func (s *Store) Architectures(ctx context.Context, image string) (out []string, err error) {
	c, err := s.Contents(ctx)
	return lists.Map(s.platforms(ctx, c.Images[image]), func(m v1.Descriptor) string { return m.Platform.Architecture }), err
}

// FileArchitectures returns the architectures, named as in Go, for which the depot has a file.
func (s *Store) FileArchitectures(ctx context.Context, file string) ([]string, error) {
	c, err := s.Contents(ctx)
	return slices.Sorted(maps.Keys(c.fileOf(file))), err
}

func (s *Store) putIndex(ctx context.Context, manifests []v1.Descriptor) (d v1.Descriptor, raw []byte, err error) {
	if raw, err = json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: manifests}); err == nil {
		d, err = s.putDocument(ctx, raw, types.OCIImageIndex)
	}
	return d, raw, err
}

func (s *Store) putDocument(ctx context.Context, raw []byte, mediaType types.MediaType) (v1.Descriptor, error) {
	h, size, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: mediaType, Digest: h, Size: size}, s.Put(ctx, h, size, bytes.NewReader(raw))
}

func (s *Store) hasAll(list func(func(v1.Hash) bool)) bool {
	for h := range list {
		if !s.has(h) {
			return false
		}
	}
	return true
}

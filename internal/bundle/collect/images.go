// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/registry"
)

// found describes an image for one platform, as the registry has it.
type found struct {
	name, arch string
	from       *session
	others     []place // where it may be, too
	mediaType  types.MediaType
	digest     v1.Hash
	raw        []byte
	manifest   v1.Manifest
	config     []byte
}

// lookups is the number of concurrent look-ups: few enough for a small registry.
const lookups = 8

// find looks up all images for all architectures. It tries all of them before it returns the errors.
func (r *registries) find(ctx context.Context, names, archs []string, done func(n int)) ([]found, error) {
	results := make([][]found, len(names))
	errs := lists.Parallel(names, lookups, func(i int, image string) (err error) {
		if ctx.Err() == nil {
			results[i], err = r.image(ctx, image, archs)
			done(1)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var list finding.List
	for _, err := range errs {
		for _, f := range finding.Of(err) {
			if !slices.ContainsFunc(list, func(g finding.Finding) bool { return g.Code == f.Code && g.What == f.What }) {
				list = append(list, f)
			}
		}
	}
	if len(list) > 0 {
		return nil, list.Err()
	}
	return slices.Concat(results...), errors.Join(errs...)
}

// image looks up one image at each possible place. An error is a finding.
func (r *registries) image(ctx context.Context, image string, archs []string) ([]found, error) {
	ref, err := name.NewTag(image)
	if err != nil {
		return nil, imageUnavailable(image, "", err)
	}
	places, err := r.places(ref)
	if err != nil {
		return nil, imageUnavailable(image, registry.Name(ref), err)
	}
	var failed error
	for i, p := range places {
		s, err := r.open(ctx, p)
		var list []found
		if err == nil {
			list, err = s.find(ctx, image, ref.TagStr(), archs)
		}
		if err == nil || ctx.Err() != nil || len(finding.Of(err)) > 0 {
			for n := range list {
				list[n].others = places[i+1:]
			}
			return list, err
		}
		failed = imageUnavailable(image, p.host(), err)
	}
	return nil, failed
}

// head holds the common fields of indexes and manifests.
type head struct {
	MediaType types.MediaType `json:"mediaType"`
	Manifests []v1.Descriptor `json:"manifests"`
	Config    *v1.Descriptor  `json:"config"`
}

func (s *session) find(ctx context.Context, image, tag string, archs []string) ([]found, error) {
	raw, err := s.manifest(ctx, tag)
	if err != nil {
		return nil, err
	}
	var top head
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", image, err)
	}
	var out []found
	for _, arch := range archs {
		f, err := s.forArch(ctx, image, arch, raw, top)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// forArch finds the image for an architecture. If an index has none, the configurations of images without a platform in the index name theirs, as for
// containerd. Source: containerd core/images/image.go.
func (s *session) forArch(ctx context.Context, image, arch string, raw []byte, top head) (f found, err error) {
	if top.Config != nil {
		return s.describe(ctx, image, arch, raw)
	}
	var named, unnamed []v1.Descriptor
	var has []string
	for _, d := range top.Manifests {
		switch p := d.Platform; {
		case p == nil:
			unnamed = append(unnamed, d)
		case p.OS == "linux":
			has = append(has, p.OS+"/"+p.Architecture)
			if p.Architecture == arch {
				named = append(named, d)
			}
		}
	}
	err = noPlatform(image, arch, has)
	for _, d := range append(named, unnamed...) {
		part, failed := s.manifest(ctx, d.Digest.String())
		if failed != nil {
			return f, failed
		}
		if f, err = s.describe(ctx, image, arch, part); err == nil || d.Platform != nil {
			break
		}
	}
	return f, err
}

// describe parses a manifest and downloads the image's configuration, which names its platform.
func (s *session) describe(ctx context.Context, image, arch string, raw []byte) (found, error) {
	f := found{name: image, arch: arch, from: s, raw: raw, digest: v1.Hash{Algorithm: "sha256", Hex: sum(raw)}}
	if err := json.Unmarshal(raw, &f.manifest); err != nil {
		return f, fmt.Errorf("reading the manifest of %s: %w", image, err)
	}
	if f.manifest.Config.Digest.Hex == "" {
		return f, fmt.Errorf("reading the manifest of %s: its schema is not 2", image)
	}
	switch f.mediaType = f.manifest.MediaType; {
	case f.mediaType != "":
	case f.manifest.Config.MediaType == types.DockerConfigJSON:
		f.mediaType = types.DockerManifestSchema2
	default:
		f.mediaType = types.OCIManifestSchema1
	}
	var err error
	if f.config, err = s.config(ctx, f.manifest.Config.Digest); err != nil {
		return f, err
	}
	var platform v1.Platform
	if err := json.Unmarshal(f.config, &platform); err != nil {
		return f, fmt.Errorf("reading the configuration of %s: %w", image, err)
	}
	if platform.OS != "linux" || platform.Architecture != arch {
		return f, noPlatform(image, arch, []string{platform.OS + "/" + platform.Architecture})
	}
	return f, nil
}

// local is an image whose layers are in the working directory, or in the bundle that the new one continues.
type local struct {
	found
	blobs func(v1.Hash) string
}

func (l local) image() (v1.Image, error) { return partial.CompressedToImage(l) }

func (l local) RawManifest() ([]byte, error)        { return l.raw, nil }
func (l local) RawConfigFile() ([]byte, error)      { return l.config, nil }
func (l local) MediaType() (types.MediaType, error) { return l.mediaType, nil }
func (l local) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, d := range l.manifest.Layers {
		if d.Digest == h {
			return localLayer{d, l.blobs(h)}, nil
		}
	}
	return nil, fmt.Errorf("reading the image %s: it has no layer %s", l.name, h)
}

type localLayer struct {
	v1.Descriptor
	file string
}

func (l localLayer) Digest() (v1.Hash, error)            { return l.Descriptor.Digest, nil }
func (l localLayer) Size() (int64, error)                { return l.Descriptor.Size, nil }
func (l localLayer) MediaType() (types.MediaType, error) { return l.Descriptor.MediaType, nil }
func (l localLayer) Compressed() (io.ReadCloser, error)  { return os.Open(l.file) }

func joined(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

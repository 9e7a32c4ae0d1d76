// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yunion.io/x/ocadm/internal/lists"
)

// load reads the index and every manifest in it: those of the platforms first, because they name the bundle that this one continues.
func (b *Bundle) load(ctx context.Context) error {
	var idx v1.IndexManifest
	if err := decode(b.index, &idx); err != nil {
		return corrupt(b.name, "reading index.json: %w", err)
	}
	if idx.SchemaVersion != 2 || idx.MediaType != types.OCIImageIndex {
		return corrupt(b.name, "index.json is not an image index")
	}
	var nodes []node
	for i, d := range idx.Manifests {
		switch {
		case d.ArtifactType == artifactType:
			n, err := b.node(d)
			if err != nil {
				return err
			}
			nodes = append(nodes, n)
		case d.ArtifactType != "" || !d.MediaType.IsImage() || d.Platform == nil:
			return corrupt(b.name, "manifest %d of index.json is of an unknown kind", i+1)
		}
	}
	if len(nodes) == 0 {
		return notABundle(b.name, "it is an image layout without the files of a node")
	}
	if err := b.openBase(ctx, nodes[0].config.Since); err != nil {
		return err
	}
	left := len(idx.Manifests) - len(nodes)
	for _, n := range nodes {
		p, err := b.loadPlatform(ctx, n, idx.Manifests)
		if err != nil {
			return err
		}
		b.platforms = append(b.platforms, p)
		left -= len(p.images)
	}
	if left != 0 {
		return corrupt(b.name, "index.json has %d images that no platform of the bundle lists", left)
	}
	return b.choose()
}

// choose selects this machine's platform for the methods, or else the first one.
func (b *Bundle) choose() error {
	seen := map[string]bool{}
	b.platform = b.platforms[0]
	for _, p := range b.platforms {
		if name := p.contents.Info.platform(); seen[name] {
			return corrupt(b.name, "it contains the platform %s twice", name)
		}
		seen[p.contents.Info.platform()] = true
		if p.contents.Info.Arch == runtime.GOARCH {
			b.platform = p
		}
	}
	return nil
}

func (b *Bundle) manifest(d v1.Descriptor) (v1.Manifest, error) {
	var m v1.Manifest
	if err := b.document(d, &m); err != nil {
		return m, err
	}
	if m.MediaType != d.MediaType && m.MediaType != "" { // the specification makes the field optional
		return m, corrupt(b.name, "the manifest %s is a %q, and index.json lists it as %q", d.Digest, m.MediaType, d.MediaType)
	}
	return m, nil
}

// presentAll checks that everything that a manifest names is present and has the right size.
func (b *Bundle) presentAll(m v1.Manifest) error {
	for _, l := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if err := b.present(l); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bundle) present(d v1.Descriptor) error {
	e, ok := b.blobs[d.Digest]
	if !ok {
		return corrupt(b.name, "the blob %s is missing", d.Digest)
	}
	if e.size != d.Size {
		return corrupt(b.name, "the blob %s has %d bytes, want %d", d.Digest, e.size, d.Size)
	}
	return nil
}

// document reads and verifies a small JSON blob.
func (b *Bundle) document(d v1.Descriptor, into any) error {
	if err := b.present(d); err != nil {
		return err
	}
	if d.Size > maxDocument {
		return corrupt(b.name, "the manifest %s has %d bytes", d.Digest, d.Size)
	}
	raw, err := io.ReadAll(b.section(d.Digest))
	if err != nil {
		return corrupt(b.name, "reading the manifest %s: %w", d.Digest, err)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != d.Digest.Hex {
		return corrupt(b.name, "the content of the blob %s has another digest", d.Digest)
	}
	if err := decode(raw, into); err != nil {
		return corrupt(b.name, "reading the manifest %s: %w", d.Digest, err)
	}
	return nil
}

func (b *Bundle) section(h v1.Hash) *io.SectionReader {
	e := b.blobs[h]
	return io.NewSectionReader(e.in, e.offset, e.size)
}

// node is the artifact manifest of a platform, and its config.
type node struct {
	manifest v1.Manifest
	config   nodeConfig
}

func (b *Bundle) node(d v1.Descriptor) (n node, err error) {
	if n.manifest, err = b.manifest(d); err != nil {
		return n, err
	}
	return n, b.document(n.manifest.Config, &n.config)
}

func (b *Bundle) loadPlatform(ctx context.Context, n node, manifests []v1.Descriptor) (*platform, error) {
	p := &platform{contents: Contents{Info: n.config.Info}, files: map[string]file{}, images: map[string]image{}}
	if err := b.loadFiles(p, n.manifest); err != nil {
		return nil, err
	}
	for _, d := range manifests {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if d.ArtifactType == "" && d.Platform.OS == n.config.OS && d.Platform.Architecture == n.config.Arch {
			if err := b.loadImage(p, d); err != nil {
				return nil, err
			}
		}
	}
	for name, digest := range n.config.Images {
		if p.images[name].manifest.Digest != digest {
			return nil, corrupt(b.name, "index.json lacks the image %s, which the bundle lists", name)
		}
	}
	if len(n.config.Images) != len(p.images) {
		return nil, corrupt(b.name, "index.json has %d images, and the bundle lists %d", len(p.images), len(n.config.Images))
	}
	slices.SortFunc(p.contents.Images, func(x, y ImageInfo) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(p.contents.Files, func(x, y FileInfo) int { return cmp.Compare(x.Path, y.Path) })
	return p, nil
}

func (b *Bundle) loadFiles(p *platform, m v1.Manifest) error {
	if err := b.presentAll(m); err != nil {
		return err
	}
	for _, l := range m.Layers {
		info, err := fileInfo(l.Annotations)
		if err != nil {
			return corrupt(b.name, "%w", err)
		}
		if _, ok := p.files[info.Path]; ok || l.MediaType != fileType {
			return corrupt(b.name, "the file %s occurs twice, or is of an unknown kind", info.Path)
		}
		p.files[info.Path] = file{info, l}
		p.contents.Files = append(p.contents.Files, info)
	}
	return nil
}

func (b *Bundle) loadImage(p *platform, d v1.Descriptor) error {
	name := d.Annotations[nameAnnotation]
	if _, ok := p.images[name]; ok || name == "" || name != d.Annotations[refAnnotation] {
		return corrupt(b.name, "index.json names the image %s %q and %q, or twice", d.Digest, name, d.Annotations[refAnnotation])
	}
	m, err := b.manifest(d)
	if err != nil {
		return err
	}
	if err := b.presentAll(m); err != nil {
		return err
	}
	img := image{manifest: d, blobs: append([]v1.Descriptor{m.Config}, m.Layers...)}
	size := d.Size + lists.Sum(img.blobs, func(b v1.Descriptor) int64 { return b.Size })
	p.images[name] = img
	p.contents.Images = append(p.contents.Images, ImageInfo{Name: name, Digest: d.Digest.String(), Size: size})
	return nil
}

// decode reads exactly one JSON document.
func decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is more data after the document, at byte %d", d.InputOffset())
	}
	return nil
}

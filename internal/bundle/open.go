// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Bundle is an open bundle. Its methods may be called at the same time.
type Bundle struct {
	name     string
	close    func() error
	r        io.ReaderAt
	blobs    map[v1.Hash]extent
	contents Contents
	files    map[string]file
	images   map[string]image
}

// extent is where a blob lies in the archive.
type extent struct{ offset, size int64 }

type file struct {
	FileInfo
	blob v1.Descriptor
}

// image is an image's manifest, as the index describes it, and its config and layers.
type image struct {
	manifest v1.Descriptor
	blobs    []v1.Descriptor
}

// No index or manifest is larger, and no bundle has more entries: more is an attack on memory or damage.
const (
	maxDocument = 8 << 20
	maxEntries  = 1 << 17
)

// Open reads what the bundle holds and where. It reads every header of the archive and every manifest, but no content: a cut-off
// bundle is found here, damage in a blob by Verify or while the blob is used.
func Open(ctx context.Context, path string) (*Bundle, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, unreadable(path, errors.Join(err, f.Close()))
	}
	b, err := read(ctx, path, f, st.Size())
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b.close = f.Close
	return b, nil
}

// Close closes the bundle's file.
func (b *Bundle) Close() error { return b.close() }

func read(ctx context.Context, name string, r io.ReaderAt, size int64) (*Bundle, error) {
	b := &Bundle{name: name, r: r, close: func() error { return nil }, blobs: map[v1.Hash]extent{}, files: map[string]file{}, images: map[string]image{}}
	index, err := b.scan(ctx, size)
	if err != nil {
		return nil, err
	}
	if err := b.load(ctx, index); err != nil {
		return nil, err
	}
	return b, nil
}

// scan makes the table of blobs in one pass over the headers and returns index.json.
func (b *Bundle) scan(ctx context.Context, size int64) (index []byte, err error) {
	s := io.NewSectionReader(b.r, 0, size)
	t := tar.NewReader(s)
	var end int64
	for n := 0; ; n++ {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		h, err := t.Next()
		if n == 0 && err != nil {
			return nil, notABundle(b.name, "reading its first header: %w", err)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, truncated(b.name, "it ends after %d bytes, within an entry", size)
		}
		if err != nil {
			return nil, corrupt(b.name, "reading the header of entry %d: %w", n+1, err)
		}
		if n == 0 && h.Name != indexName {
			return nil, notABundle(b.name, "its first entry is %q, want %s", h.Name, indexName)
		}
		offset, err := s.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, corrupt(b.name, "finding entry %d: %w", n+1, err)
		}
		if h.Size > size-offset {
			return nil, truncated(b.name, "it ends after %d bytes, within %s", size, h.Name)
		}
		if n > maxEntries || h.Typeflag != tar.TypeReg {
			return nil, corrupt(b.name, "entry %d, %q, does not belong into a bundle", n+1, h.Name)
		}
		doc, err := b.entry(t, h, offset)
		if err != nil {
			return nil, err
		}
		if h.Name == indexName {
			index = doc
		}
		end = offset + (h.Size+blockSize-1)/blockSize*blockSize
	}
	if size < end+2*blockSize {
		return nil, truncated(b.name, "it ends after %d bytes, without the end mark of an archive", size)
	}
	return index, nil
}

const blockSize = 512

// entry notes one entry of the archive; it reads those that are no blobs.
func (b *Bundle) entry(t io.Reader, h *tar.Header, offset int64) ([]byte, error) {
	if digest, ok := strings.CutPrefix(h.Name, blobPrefix); ok {
		hash, err := v1.NewHash("sha256:" + digest)
		if err != nil {
			return nil, corrupt(b.name, "the entry %q does not belong into a bundle", h.Name)
		}
		if _, ok := b.blobs[hash]; ok {
			return nil, corrupt(b.name, "the blob %s is there twice", hash)
		}
		b.blobs[hash] = extent{offset, h.Size}
		return nil, nil
	}
	if h.Size > maxDocument {
		return nil, corrupt(b.name, "%s has %d bytes", h.Name, h.Size)
	}
	doc, err := io.ReadAll(t)
	if err != nil {
		return nil, corrupt(b.name, "reading %s: %w", h.Name, err)
	}
	switch {
	case h.Name == indexName && offset == blockSize:
		return doc, nil
	case h.Name == layoutName && string(doc) == layoutJSON:
		return nil, nil
	}
	return nil, corrupt(b.name, "the entry %q does not belong into a bundle", h.Name)
}

// load reads the index and every manifest that it names.
func (b *Bundle) load(ctx context.Context, index []byte) error {
	var idx v1.IndexManifest
	if err := decode(index, &idx); err != nil {
		return corrupt(b.name, "reading index.json: %w", err)
	}
	if idx.SchemaVersion != 2 || idx.MediaType != types.OCIImageIndex {
		return corrupt(b.name, "index.json is no image index")
	}
	var config *nodeConfig
	for i, d := range idx.Manifests {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var err error
		switch {
		case d.ArtifactType == artifactType && config == nil:
			config, err = b.loadNode(d)
		case d.ArtifactType == "" && d.MediaType.IsImage():
			err = b.loadImage(d)
		default:
			err = corrupt(b.name, "manifest %d of index.json is not known", i+1)
		}
		if err != nil {
			return err
		}
	}
	if config == nil {
		return notABundle(b.name, "it is an image layout without the files of a node")
	}
	b.contents.Info = config.Info
	for name, digest := range config.Images {
		if b.images[name].manifest.Digest != digest {
			return corrupt(b.name, "index.json does not hold the image %s that was put in", name)
		}
	}
	if len(config.Images) != len(b.images) {
		return corrupt(b.name, "index.json has %d images and %d were put in", len(b.images), len(config.Images))
	}
	slices.SortFunc(b.contents.Images, func(x, y ImageInfo) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(b.contents.Files, func(x, y FileInfo) int { return cmp.Compare(x.Path, y.Path) })
	return nil
}

// manifest reads a manifest and checks that everything it names is there in its size.
func (b *Bundle) manifest(d v1.Descriptor) (v1.Manifest, error) {
	var m v1.Manifest
	if err := b.document(d, &m); err != nil {
		return m, err
	}
	if m.MediaType != d.MediaType {
		return m, corrupt(b.name, "the manifest %s is a %q and index.json has it as %q", d.Digest, m.MediaType, d.MediaType)
	}
	for _, l := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if err := b.present(l); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (b *Bundle) present(d v1.Descriptor) error {
	e, ok := b.blobs[d.Digest]
	if !ok {
		return corrupt(b.name, "the blob %s is not there", d.Digest)
	}
	if e.size != d.Size {
		return corrupt(b.name, "the blob %s has %d bytes, want %d", d.Digest, e.size, d.Size)
	}
	return nil
}

// document reads a small blob that is JSON, and checks it.
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
	return io.NewSectionReader(b.r, e.offset, e.size)
}

func (b *Bundle) loadNode(d v1.Descriptor) (*nodeConfig, error) {
	m, err := b.manifest(d)
	if err != nil {
		return nil, err
	}
	var config nodeConfig
	if err := b.document(m.Config, &config); err != nil {
		return nil, err
	}
	for _, l := range m.Layers {
		info, err := fileInfo(l.Annotations)
		if err != nil {
			return nil, corrupt(b.name, "%w", err)
		}
		if _, ok := b.files[info.Path]; ok || l.MediaType != fileType {
			return nil, corrupt(b.name, "the file %s is there twice, or of an unknown kind", info.Path)
		}
		b.files[info.Path] = file{info, l}
		b.contents.Files = append(b.contents.Files, info)
	}
	return &config, nil
}

func (b *Bundle) loadImage(d v1.Descriptor) error {
	name := d.Annotations[nameAnnotation]
	if _, ok := b.images[name]; ok || name == "" || name != d.Annotations[refAnnotation] {
		return corrupt(b.name, "index.json names the image %s %q and %q, or twice", d.Digest, name, d.Annotations[refAnnotation])
	}
	m, err := b.manifest(d)
	if err != nil {
		return err
	}
	img := image{manifest: d, blobs: append([]v1.Descriptor{m.Config}, m.Layers...)}
	size := d.Size
	for _, l := range img.blobs {
		size += l.Size
	}
	b.images[name] = img
	b.contents.Images = append(b.contents.Images, ImageInfo{Name: name, Digest: d.Digest.String(), Size: size})
	return nil
}

// decode reads exactly one JSON document.
func decode(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows the document at byte %d", d.InputOffset())
	}
	return nil
}

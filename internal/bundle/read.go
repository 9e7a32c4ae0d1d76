// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/lists"
)

// Verify reads the whole bundle and checks every blob. progress, which may be nil, receives the number of bytes read so far.
func (b *Bundle) Verify(ctx context.Context, progress func(done, total int64)) error {
	digests := slices.SortedFunc(maps.Keys(b.blobs), func(x, y v1.Hash) int { return cmp.Compare(b.blobs[x].offset, b.blobs[y].offset) })
	var done, total int64
	for _, e := range b.blobs {
		total += e.size
	}
	var mu sync.Mutex
	count := fetch.Writer(io.Discard, func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		if done += n; progress != nil {
			progress(done, total)
		}
	})
	return lists.Each(ctx, digests, runtime.GOMAXPROCS(0), func(ctx context.Context, h v1.Hash) error { return b.copyBlob(ctx, count, h) })
}

// copyBlob copies a blob and returns an error at the end if its digest is wrong.
func (b *Bundle) copyBlob(ctx context.Context, w io.Writer, h v1.Hash) error {
	sum := sha256.New()
	const chunk = 1 << 20
	_, err := io.CopyBuffer(io.MultiWriter(sum, w), fetch.Reader(ctx, b.section(h), nil), make([]byte, max(1, min(chunk, b.blobs[h].size))))
	if err != nil {
		return fmt.Errorf("reading the blob %s of the bundle %s: %w", h, b.name, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != h.Hex {
		return corrupt(b.name, "the content of the blob %s has another digest", h)
	}
	return nil
}

// OpenFile opens one of the node's files. Reading fails at the end if the content is damaged: do not use any of it before then.
func (b *Bundle) OpenFile(path string) (io.ReadCloser, error) {
	p, err := cleanPath(path)
	if err != nil {
		return nil, err
	}
	f, ok := b.files[p]
	if !ok {
		return nil, missingFile(b.name, p)
	}
	z, err := zstd.NewReader(b.section(f.blob.Digest), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("reading %s of the bundle %s: %w", p, b.name, err)
	}
	return &verified{bundle: b.name, file: f.FileInfo, z: z, sum: sha256.New()}, nil
}

// verified reads a file and checks size and digest at its end.
type verified struct {
	bundle string
	file   FileInfo
	z      *zstd.Decoder
	sum    hash.Hash
	n      int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.z.Read(p)
	v.n += int64(n)
	v.sum.Write(p[:n])
	switch {
	case v.n > v.file.Size:
		return 0, corrupt(v.bundle, "the file %s is longer than %d bytes", v.file.Path, v.file.Size)
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return 0, corrupt(v.bundle, "unpacking %s: %w", v.file.Path, err)
	case v.n != v.file.Size || "sha256:"+hex.EncodeToString(v.sum.Sum(nil)) != v.file.Digest:
		return 0, corrupt(v.bundle, "the content of %s has another digest", v.file.Path)
	}
	return n, io.EOF
}

func (v *verified) Close() error {
	v.z.Close()
	return nil
}

// WriteImages writes the named images as a tar archive of an OCI image layout, as "ctr images import -" accepts it. It verifies every blob while
// writing: after an error, nothing written may be used.
func (b *Bundle) WriteImages(ctx context.Context, w io.Writer, names []string) error {
	if err := b.CheckImages(names); err != nil {
		return err
	}
	manifests, digests := b.pick(names)
	blobs := lists.Map(digests, func(h v1.Hash) v1.Descriptor { return v1.Descriptor{Digest: h, Size: b.blobs[h].size} })
	return WriteLayout(w, manifests, blobs, func(w io.Writer, h v1.Hash) error { return b.copyBlob(ctx, w, h) })
}

// WriteLayout writes an OCI image layout as a tar archive. manifests become its index, and copyBlob writes a single blob.
func WriteLayout(w io.Writer, manifests, blobs []v1.Descriptor, copyBlob func(io.Writer, v1.Hash) error) error {
	index, err := layoutIndex(manifests)
	if err != nil {
		return fmt.Errorf("writing the index of the images: %w", err)
	}
	t := tar.NewWriter(w)
	if err := errors.Join(writeBytes(t, layoutName, []byte(layoutJSON)), writeBytes(t, indexName, index)); err != nil {
		return fmt.Errorf("writing images: %w", err)
	}
	for _, d := range blobs {
		if err := t.WriteHeader(header(blobPrefix+d.Digest.Hex, d.Size)); err != nil {
			return fmt.Errorf("writing images: %w", err)
		}
		if err := copyBlob(t, d.Digest); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("writing images: %w", err)
	}
	return nil
}

// Named returns an image's entry in the index of a layout.
func Named(name string, d v1.Descriptor) v1.Descriptor {
	d.Annotations = map[string]string{nameAnnotation: name, refAnnotation: name}
	return d
}

// ImagesSize returns how many bytes of blobs WriteImages writes for these images.
func (b *Bundle) ImagesSize(names []string) int64 {
	_, digests := b.pick(names)
	return lists.Sum(digests, func(h v1.Hash) int64 { return b.blobs[h].size })
}

// Image returns an image's manifest, and its config and layers, or nothing if the bundle does not have it.
func (b *Bundle) Image(name string) (manifest v1.Descriptor, blobs []v1.Descriptor) {
	img := b.images[name]
	return img.manifest, slices.Clone(img.blobs)
}

// OpenBlob opens a blob of an image for reading. The caller must verify its digest.
func (b *Bundle) OpenBlob(h v1.Hash) io.Reader { return b.section(h) }

// pick returns the index entries and the blobs, without duplicates, of those images that the bundle has.
func (b *Bundle) pick(names []string) (manifests []v1.Descriptor, digests []v1.Hash) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	seen := map[v1.Hash]bool{}
	for _, n := range names {
		img, ok := b.images[n]
		if !ok {
			continue
		}
		manifests = append(manifests, img.manifest)
		for _, d := range append([]v1.Descriptor{img.manifest}, img.blobs...) {
			if !seen[d.Digest] {
				seen[d.Digest] = true
				digests = append(digests, d.Digest)
			}
		}
	}
	return manifests, digests
}

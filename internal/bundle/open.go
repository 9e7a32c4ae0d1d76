// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Bundle is an open bundle. Its methods may be called concurrently.
type Bundle struct {
	name  string
	close func() error
	r     io.ReaderAt
	// blobs holds the blobs of this bundle and of the one that it continues.
	blobs            map[v1.Hash]extent
	id               v1.Hash
	index, signature []byte
	since            *Since
	platforms        []*platform
	// platform is the one that methods work on: this machine's if the bundle is for it.
	*platform
}

type platform struct {
	contents Contents
	files    map[string]file
	images   map[string]image
}

// extent is the position of a blob in an archive.
type extent struct {
	in           io.ReaderAt
	offset, size int64
}

type file struct {
	FileInfo
	blob v1.Descriptor
}

// image holds an image's manifest, as the index describes it, and its config and layers.
type image struct {
	manifest v1.Descriptor
	blobs    []v1.Descriptor
}

// Limits for indexes, manifests and the number of entries: more means damage, or an attempt to exhaust memory.
const (
	maxDocument = 8 << 20
	maxEntries  = 1 << 17
)

// Open reads the table of contents of a bundle. It reads every header of the archive and every manifest, but no other content: it detects a truncated
// bundle. Verify, or using a blob, detects damaged blobs.
//
// If the bundle continues another one, Open opens that too: it must be in the same directory.
func Open(ctx context.Context, path string) (*Bundle, error) { return openAs(ctx, path, v1.Hash{}) }

// openAs opens a bundle and checks its ID, unless want is empty.
func openAs(ctx context.Context, path string, want v1.Hash) (*Bundle, error) {
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
	b, err := read(ctx, path, f, st.Size(), want)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	base := b.close
	b.close = func() error { return errors.Join(f.Close(), base()) }
	return b, nil
}

func (b *Bundle) Close() error { return b.close() }

func read(ctx context.Context, name string, r io.ReaderAt, size int64, want v1.Hash) (*Bundle, error) {
	b := &Bundle{name: name, r: r, close: func() error { return nil }, blobs: map[v1.Hash]extent{}}
	if err := b.scan(ctx, size); err != nil {
		return nil, err
	}
	b.id = v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(b.index))}
	if want != (v1.Hash{}) && want != b.id {
		return nil, &otherIDError{name, b.id}
	}
	if err := b.load(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// scan indexes the blobs in one pass over the headers, and reads index.json and the signature.
func (b *Bundle) scan(ctx context.Context, size int64) error {
	s := io.NewSectionReader(b.r, 0, size)
	t := tar.NewReader(s)
	var end int64
	for n := 0; ; n++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, err := t.Next()
		if n == 0 && err != nil {
			return notABundle(b.name, "reading its first header: %w", err)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return truncated(b.name, "it ends after %d bytes, within an entry", size)
		}
		if err != nil {
			return corrupt(b.name, "reading the header of entry %d: %w", n+1, err)
		}
		if n == 0 && h.Name != indexName {
			return notABundle(b.name, "its first entry is %q, want %s", h.Name, indexName)
		}
		offset, err := s.Seek(0, io.SeekCurrent)
		if err != nil {
			return corrupt(b.name, "finding entry %d: %w", n+1, err)
		}
		if h.Size > size-offset {
			return truncated(b.name, "it ends after %d bytes, within %s", size, h.Name)
		}
		if n > maxEntries || h.Typeflag != tar.TypeReg {
			return corrupt(b.name, "entry %d, %q, does not belong in a bundle", n+1, h.Name)
		}
		if err := b.entry(t, h, offset); err != nil {
			return err
		}
		end = offset + (h.Size+blockSize-1)/blockSize*blockSize
	}
	if size < end+2*blockSize {
		return truncated(b.name, "it ends after %d bytes, without the end mark of an archive", size)
	}
	return nil
}

const blockSize = 512

// entry records one entry of the archive, and reads it if it is not a blob.
func (b *Bundle) entry(t io.Reader, h *tar.Header, offset int64) error {
	if digest, ok := strings.CutPrefix(h.Name, blobPrefix); ok {
		hash, err := v1.NewHash("sha256:" + digest)
		if err != nil {
			return corrupt(b.name, "the entry %q does not belong in a bundle", h.Name)
		}
		if _, ok := b.blobs[hash]; ok {
			return corrupt(b.name, "the blob %s occurs twice", hash)
		}
		b.blobs[hash] = extent{b.r, offset, h.Size}
		return nil
	}
	if h.Size > maxDocument {
		return corrupt(b.name, "%s has %d bytes", h.Name, h.Size)
	}
	doc, err := io.ReadAll(t)
	if err != nil {
		return corrupt(b.name, "reading %s: %w", h.Name, err)
	}
	switch {
	case h.Name == indexName && offset == blockSize:
		b.index = doc
	case h.Name == signatureName && b.signature == nil:
		b.signature = doc
	case h.Name != layoutName || string(doc) != layoutJSON:
		return corrupt(b.name, "the entry %q does not belong in a bundle", h.Name)
	}
	return nil
}

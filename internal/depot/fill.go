// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/lists"
)

// Fill stores everything of a bundle, for all its platforms, under a root. An image for several platforms becomes an index. File names begin with the
// platform: "linux/amd64/usr/local/bin/kubelet". progress, which may be nil, receives the number of bytes stored so far. A repeated Fill skips the
// blobs that an interrupted one has stored.
func (s *Store) Fill(ctx context.Context, root string, b *bundle.Bundle, progress func(done, total int64)) error {
	return s.Storing(ctx, func() error { return s.fill(ctx, root, b, progress) })
}

func (s *Store) fill(ctx context.Context, root string, b *bundle.Bundle, progress func(done, total int64)) error {
	r := Root{Name: root, Series: BundleSeries(b.Platforms()...), Whole: true, Images: map[string]v1.Descriptor{}, Files: map[string]File{}}
	f := filling{store: s, done: progress}
	manifests := map[string][]v1.Descriptor{}
	var blobs []v1.Descriptor
	var files []bundle.FileInfo
	for _, view := range b.Views() {
		blobs = append(blobs, blobsOf(view, manifests)...)
		files = append(files, view.Contents().Files...)
	}
	blobs = distinct(blobs)
	f.total = sizeOf(blobs) + lists.Sum(files, func(file bundle.FileInfo) int64 { return file.Size })
	if err := s.room(s.absent(blobs, files)); err != nil {
		return err
	}
	for _, d := range blobs {
		if err := f.put(ctx, d.Digest, d.Size, b.OpenBlob(d.Digest)); err != nil {
			return err
		}
	}
	for name, list := range manifests {
		d, err := s.index(ctx, list)
		if err != nil {
			return fmt.Errorf("storing the image %s: %w", name, err)
		}
		r.Images[name] = d
	}
	for _, view := range b.Views() {
		if err := f.files(ctx, view, r.Files); err != nil {
			return err
		}
	}
	return s.SetRoot(ctx, r)
}

// blobsOf adds the manifests of a platform to those of each image, and returns all blobs.
func blobsOf(b *bundle.Bundle, manifests map[string][]v1.Descriptor) (blobs []v1.Descriptor) {
	for _, i := range b.Contents().Images {
		manifest, rest := b.Image(i.Name)
		manifest.Annotations = nil // they repeat the name
		manifests[i.Name] = append(manifests[i.Name], manifest)
		blobs = append(append(blobs, rest...), manifest)
	}
	return blobs
}

func sizeOf(blobs []v1.Descriptor) int64 {
	return lists.Sum(blobs, func(d v1.Descriptor) int64 { return d.Size })
}

func distinct(list []v1.Descriptor) []v1.Descriptor {
	seen := map[v1.Hash]bool{}
	return slices.DeleteFunc(list, func(d v1.Descriptor) bool {
		before := seen[d.Digest]
		seen[d.Digest] = true
		return before
	})
}

// index stores an index of the manifests of an image, unless there is only one.
func (s *Store) index(ctx context.Context, manifests []v1.Descriptor) (v1.Descriptor, error) {
	if len(manifests) == 1 {
		return manifests[0], nil
	}
	d, _, err := s.putIndex(ctx, manifests)
	return d, err
}

// files stores the files of a platform.
func (f *filling) files(ctx context.Context, b *bundle.Bundle, into map[string]File) error {
	c := b.Contents()
	for _, file := range c.Files {
		h, err := v1.NewHash(file.Digest)
		if err != nil {
			return fmt.Errorf("storing the file %s: %w", file.Path, err)
		}
		in, err := b.OpenFile(file.Path)
		if err != nil {
			return err
		}
		if err := errors.Join(f.put(ctx, h, file.Size, in), in.Close()); err != nil {
			return err
		}
		into[path.Join(c.Info.OS, c.Info.Arch, file.Path)] = File{Digest: h, Size: file.Size, Mode: file.Mode}
	}
	return nil
}

// absent returns how many bytes of these are not in the store.
func (s *Store) absent(blobs []v1.Descriptor, files []bundle.FileInfo) int64 {
	size := sizeOf(lists.Filter(blobs, func(d v1.Descriptor) bool { return !s.has(d.Digest) }))
	for _, f := range files {
		if h, err := v1.NewHash(f.Digest); err != nil || !s.has(h) {
			size += f.Size
		}
	}
	return size
}

type filling struct {
	store        *Store
	done         func(done, total int64)
	sofar, total int64
}

func (f *filling) put(ctx context.Context, h v1.Hash, size int64, in io.Reader) error {
	before := f.sofar
	err := f.store.Put(ctx, h, size, fetch.Reader(ctx, in, func(n int64) {
		f.sofar += n
		f.report()
	}))
	f.sofar = before + size // even for a blob that was already there
	f.report()
	return err
}

func (f *filling) report() {
	if f.done != nil {
		f.done(min(f.sofar, f.total), f.total)
	}
}

// AddImage stores an image for a root that the caller creates, and returns the descriptor of its manifest.
func (s *Store) AddImage(ctx context.Context, img v1.Image) (d v1.Descriptor, err error) {
	layers, layersErr := img.Layers()
	config, configErr := img.RawConfigFile()
	manifest, manifestErr := img.RawManifest()
	mediaType, typeErr := img.MediaType()
	if err := cmp.Or(layersErr, configErr, manifestErr, typeErr); err != nil {
		return d, fmt.Errorf("storing an image: %w", err)
	}
	for _, l := range layers {
		if err := s.addLayer(ctx, l); err != nil {
			return d, err
		}
	}
	if _, err := s.putDocument(ctx, config, ""); err != nil {
		return d, err
	}
	return s.putDocument(ctx, manifest, mediaType)
}

func (s *Store) addLayer(ctx context.Context, l v1.Layer) error {
	h, err := l.Digest()
	if err != nil {
		return fmt.Errorf("storing a layer: %w", err)
	}
	size, err := l.Size()
	if err != nil {
		return fmt.Errorf("storing the layer %s: %w", h, err)
	}
	in, err := l.Compressed()
	if err != nil {
		return fmt.Errorf("storing the layer %s: %w", h, err)
	}
	return errors.Join(s.Put(ctx, h, size, in), in.Close())
}

// AddFile stores a file for a root that the caller creates.
func (s *Store) AddFile(ctx context.Context, name string) (f File, err error) {
	in, err := os.Open(name)
	if err != nil {
		return f, fmt.Errorf("storing a file: %w", err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	st, err := in.Stat()
	if err != nil {
		return f, fmt.Errorf("storing %s: %w", name, err)
	}
	if f.Digest, f.Size, err = v1.SHA256(fetch.Reader(ctx, in, nil)); err != nil {
		return f, fmt.Errorf("storing %s: %w", name, err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return f, fmt.Errorf("storing %s: %w", name, err)
	}
	f.Mode = st.Mode().Perm()
	return f, s.Put(ctx, f.Digest, f.Size, in)
}

// AddArchive stores the images of a tar archive of an OCI image layout, for a root that the caller creates. It returns their descriptors by full
// name.
func (s *Store) AddArchive(ctx context.Context, in io.Reader) (map[string]v1.Descriptor, error) {
	var index v1.IndexManifest
	for t := tar.NewReader(in); ; {
		e, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading an archive of images: %w", err)
		}
		digest, blob := strings.CutPrefix(path.Clean(e.Name), "blobs/sha256/")
		switch {
		case e.Typeflag != tar.TypeReg:
		case blob:
			err = s.Put(ctx, v1.Hash{Algorithm: "sha256", Hex: digest}, e.Size, t)
		case path.Clean(e.Name) == "index.json":
			err = json.NewDecoder(io.LimitReader(t, maxDocument)).Decode(&index)
		}
		if err != nil {
			return nil, fmt.Errorf("storing the images of an archive: %w", err)
		}
	}
	out := map[string]v1.Descriptor{}
	for _, d := range index.Manifests {
		if name := d.Annotations["io.containerd.image.name"]; name != "" {
			d.Annotations = nil
			out[name] = d
		}
	}
	return out, nil
}

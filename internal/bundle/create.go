// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"yunion.io/x/ocadm/internal/fetch"
)

// Spec describes a bundle to build.
type Spec struct {
	Platforms []Platform
	// Since, which may be nil, is the bundle that the new one continues: its blobs are omitted, and it must be in the same directory.
	Since *Bundle
	// Key, which may be nil, is the signing key.
	Key ed25519.PrivateKey
	// Dir is where compressed files are kept; it must be on the bundle's file system and is not removed. If empty, a temporary directory is used.
	Dir string
}

// Platform holds the contents of a bundle for one platform.
type Platform struct {
	Info   Info
	Files  []FileSource
	Images []ImageSource
}

// Create writes a bundle for one platform to path.
func Create(ctx context.Context, path string, info Info, files []FileSource, images []ImageSource) error {
	return Build(ctx, path, Spec{Platforms: []Platform{{info, files, images}}})
}

// Build writes a bundle to path, replacing an existing file only once the new one is complete. The same input gives the same bytes.
func Build(ctx context.Context, path string, spec Spec) (err error) {
	if spec.Dir == "" {
		if spec.Dir, err = os.MkdirTemp(filepath.Dir(path), ".bundle-*"); err != nil {
			return fmt.Errorf("creating a bundle: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(spec.Dir)) }()
	}
	if err := build(ctx, path, spec); err != nil {
		return fmt.Errorf("creating the bundle %s: %w", path, err)
	}
	return nil
}

func build(ctx context.Context, path string, spec Spec) error {
	s := staged{dir: spec.Dir, blobs: map[v1.Hash]source{}}
	if spec.Since != nil {
		s.since = &Since{spec.Since.ID(), filepath.Base(spec.Since.Name())}
	}
	var nodes, all []v1.Descriptor
	seen := map[string]bool{}
	for _, p := range spec.Platforms {
		if p.Info.OS == "" || p.Info.Arch == "" || p.Info.KubernetesVersion == "" || seen[p.Info.platform()] {
			return fmt.Errorf("the operating system, the architecture and the Kubernetes version must be given, of each platform once: %+v", p.Info)
		}
		seen[p.Info.platform()] = true
		images, err := s.images(ctx, p.Info, p.Images)
		if err != nil {
			return err
		}
		node, err := s.node(ctx, p.Info, p.Files, images)
		if err != nil {
			return err
		}
		nodes, all = append(nodes, node), append(all, images...)
	}
	if len(nodes) == 0 {
		return errors.New("no platform was given")
	}
	maps.DeleteFunc(s.blobs, func(h v1.Hash, b source) bool { return !b.document && spec.Since != nil && spec.Since.Has(h) })
	index, err := layoutIndex(append(nodes, all...))
	if err != nil {
		return err
	}
	temp := filepath.Join(spec.Dir, "bundle")
	if err := s.write(ctx, temp, index, spec.Key); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

type source struct {
	size int64
	open func() (io.ReadCloser, error)
	// document marks blobs that Open reads before it knows which bundle this one continues.
	document bool
}

// staged holds the future contents of a bundle: each blob once, however often it is used.
type staged struct {
	dir   string
	since *Since
	blobs map[v1.Hash]source
}

func (s *staged) bytes(b []byte) v1.Hash {
	h := v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(b))}
	s.blobs[h] = source{int64(len(b)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }, true}
	return h
}

func (s *staged) images(ctx context.Context, info Info, images []ImageSource) ([]v1.Descriptor, error) {
	images = slices.SortedFunc(slices.Values(images), func(a, b ImageSource) int { return cmp.Compare(a.Name, b.Name) })
	var list []v1.Descriptor
	for i, img := range images {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if i > 0 && images[i-1].Name == img.Name {
			return nil, fmt.Errorf("adding the image %s: it is given twice", img.Name)
		}
		d, err := s.image(info, img)
		if err != nil {
			return nil, fmt.Errorf("adding the image %s: %w", img.Name, err)
		}
		list = append(list, d)
	}
	return list, nil
}

func (s *staged) image(info Info, img ImageSource) (v1.Descriptor, error) {
	if _, err := name.NewTag(img.Name, name.StrictValidation); err != nil {
		return v1.Descriptor{}, fmt.Errorf("checking its name: %w", err)
	}
	config, err := img.Image.ConfigFile()
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("reading its config: %w", err)
	}
	if config.OS != info.OS || config.Architecture != info.Arch {
		return v1.Descriptor{}, fmt.Errorf("it is for %s/%s, and the bundle is for %s/%s", config.OS, config.Architecture, info.OS, info.Arch)
	}
	rawConfig, configErr := img.Image.RawConfigFile()
	layers, layersErr := img.Image.Layers()
	raw, rawErr := img.Image.RawManifest()
	mediaType, typeErr := img.Image.MediaType()
	if err := cmp.Or(configErr, layersErr, rawErr, typeErr); err != nil {
		return v1.Descriptor{}, fmt.Errorf("reading it: %w", err)
	}
	s.bytes(rawConfig)
	for _, l := range layers {
		digest, digestErr := l.Digest()
		size, sizeErr := l.Size()
		if err := cmp.Or(digestErr, sizeErr); err != nil {
			return v1.Descriptor{}, fmt.Errorf("reading the layer %s: %w", digest, err)
		}
		if _, ok := s.blobs[digest]; !ok {
			s.blobs[digest] = source{size: size, open: l.Compressed}
		}
	}
	return imageDescriptor(img.Name, mediaType, s.bytes(raw), int64(len(raw)), info), nil
}

// node stages the files and returns the artifact manifest that lists them.
func (s *staged) node(ctx context.Context, info Info, files []FileSource, images []v1.Descriptor) (v1.Descriptor, error) {
	layers := make([]v1.Descriptor, len(files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	temp := func(i int) string { return filepath.Join(s.dir, fmt.Sprintf("file-%s-%d", info.Arch, i)) }
	for i, f := range files {
		if f.packed != nil {
			layers[i] = *f.packed
			continue
		}
		g.Go(func() error {
			d, err := s.file(ctx, info, f, temp(i))
			if err != nil {
				return fmt.Errorf("adding the file %s: %w", f.Path, err)
			}
			layers[i] = d
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return v1.Descriptor{}, err
	}
	for i, l := range layers {
		open := func() (io.ReadCloser, error) { return os.Open(temp(i)) }
		if e := files[i].there; files[i].packed != nil {
			open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(e.in, e.offset, e.size)), nil }
		}
		s.blobs[l.Digest] = source{size: l.Size, open: open}
	}
	slices.SortFunc(layers, func(a, b v1.Descriptor) int {
		return cmp.Compare(a.Annotations[pathAnnotation], b.Annotations[pathAnnotation])
	})
	for i := 1; i < len(layers); i++ {
		if p := layers[i].Annotations[pathAnnotation]; p == layers[i-1].Annotations[pathAnnotation] {
			return v1.Descriptor{}, fmt.Errorf("adding the file %s: it is given twice", p)
		}
	}
	config := nodeConfig{Info: info, Images: map[string]v1.Hash{}, Since: s.since}
	for _, d := range images {
		config.Images[d.Annotations[nameAnnotation]] = d.Digest
	}
	rawConfig, err := json.Marshal(config)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("encoding the bundle's description: %w", err)
	}
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: artifactType,
		Config: v1.Descriptor{MediaType: configType, Digest: s.bytes(rawConfig), Size: int64(len(rawConfig))},
		Layers: layers,
	})
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("encoding the list of files: %w", err)
	}
	return v1.Descriptor{
		MediaType: types.OCIManifestSchema1, ArtifactType: artifactType, Digest: s.bytes(raw), Size: int64(len(raw)),
		Platform: &v1.Platform{OS: info.OS, Architecture: info.Arch},
	}, nil
}

// file compresses a file into temp and returns the blob's descriptor.
func (s *staged) file(ctx context.Context, info Info, f FileSource, temp string) (d v1.Descriptor, err error) {
	path, err := cleanPath(f.Path)
	if err != nil {
		return d, err
	}
	in, err := f.Open()
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buffered := bufio.NewReaderSize(fetch.Reader(ctx, in, nil), 1<<16)
	if err := checkELF(buffered, info.Arch); err != nil {
		return d, err
	}
	packed, plain := sha256.New(), sha256.New()
	z, err := zstd.NewWriter(io.MultiWriter(out, packed), zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return d, err
	}
	size, err := io.Copy(io.MultiWriter(z, plain), buffered)
	if err := errors.Join(err, z.Close()); err != nil {
		return d, err
	}
	stored, err := out.Seek(0, io.SeekCurrent)
	if err != nil {
		return d, err
	}
	return v1.Descriptor{
		MediaType: fileType, Size: stored, Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(packed.Sum(nil))},
		Annotations: fileAnnotations(FileInfo{
			Path: path, Mode: f.Mode, Size: size, Digest: "sha256:" + hex.EncodeToString(plain.Sum(nil)), Origin: f.Origin,
		}),
	}, nil
}

// checkELF refuses programs that are not for arch. Files that are not ELF, and architectures missing from this table, pass.
func checkELF(r *bufio.Reader, arch string) error {
	machines := map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "loong64": elf.EM_LOONGARCH, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390,
	}
	const identAndMachine = 20
	head, err := r.Peek(identAndMachine)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	want, known := machines[arch]
	if !known || string(head[:4]) != elf.ELFMAG {
		return nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	if got := elf.Machine(order.Uint16(head[18:])); got != want {
		return fmt.Errorf("it is a program for %s, and the bundle is for %s", got, arch)
	}
	return nil
}

// write writes the archive: the index first, then the blobs sorted by digest.
func (s *staged) write(ctx context.Context, path string, index []byte, key ed25519.PrivateKey) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	if err := errors.Join(writeBytes(w, indexName, index), writeBytes(w, layoutName, []byte(layoutJSON))); err != nil {
		return err
	}
	if key != nil {
		if err := writeBytes(w, signatureName, ed25519.Sign(key, index)); err != nil {
			return err
		}
	}
	if err := s.writeBlobs(ctx, w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Sync()
}

// writeBlobs writes the blobs sorted by digest.
func (s *staged) writeBlobs(ctx context.Context, w *tar.Writer) error {
	for _, h := range slices.SortedFunc(maps.Keys(s.blobs), func(a, b v1.Hash) int { return cmp.Compare(a.Hex, b.Hex) }) {
		if err := writeBlob(ctx, w, h, s.blobs[h]); err != nil {
			return fmt.Errorf("writing the blob %s: %w", h, err)
		}
	}
	return nil
}

func writeBytes(w *tar.Writer, name string, b []byte) error {
	if err := w.WriteHeader(header(name, int64(len(b)))); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// writeBlob copies a blob and verifies its digest.
func writeBlob(ctx context.Context, w *tar.Writer, h v1.Hash, src source) (err error) {
	r, err := src.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := w.WriteHeader(header(blobPrefix+h.Hex, src.size)); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), fetch.Reader(ctx, r, nil))
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != src.size || got != h.Hex {
		return fmt.Errorf("got %d bytes with the digest sha256:%s, want %d", n, got, src.size)
	}
	return nil
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)}
}

// SPDX-License-Identifier: Apache-2.0

// Package ownimage packs this program into a container image, and pushes it. The image has one layer: the program and the CA certificates that
// Mozilla trusts. The same program gives the same digest, so a node can tell whether it already has the image.
package ownimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// CodePack is the finding code of a program that cannot be packed.
const CodePack = "OCA-2201"

const (
	programPath = "ocadm"
	// rootsPath is one of the places where Go looks for the system's CA certificates.
	rootsPath = "etc/ssl/certs/ca-certificates.crt"
	// nobody is the UID that the image runs as unless the pod sets another.
	nobody = "65534:65534"
)

// epoch is the timestamp of everything in the image: a real one would change the digest.
var epoch = time.Unix(0, 0).UTC()

// Pack returns the image of a static Linux program for amd64 or arm64. It holds the compressed program in memory. Any other kind of file is a finding
// with CodePack.
func Pack(program string) (v1.Image, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, finding.Errorf(CodePack, "This program cannot be packed into an image", "make sure that "+program+" exists and is readable", "%w", err)
	}
	arch, err := architecture(data)
	if err != nil {
		return nil, finding.Errorf(CodePack, program+" cannot be packed into an image",
			"use a released ocadm, or build one with make build", "%w", err)
	}
	l, err := newLayer(data)
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, l); err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", program, err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Created, cfg.History = "linux", arch, v1.Time{Time: epoch}, nil
	cfg.Config = v1.Config{Entrypoint: []string{"/" + programPath}, User: nobody}
	return mutate.ConfigFile(img, cfg)
}

// Size returns the total size of an image's blobs in bytes.
func Size(img v1.Image) (int64, error) {
	m, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	return m.Config.Size + lists.Sum(m.Layers, func(l v1.Descriptor) int64 { return l.Size }), nil
}

func architecture(program []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("it is not a Linux program: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", errors.New("it is linked dynamically, and the image contains no libraries")
		}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("it is for %s, and images are built for amd64 and arm64", f.Machine)
	}
}

// Inspect returns the architecture (a GOARCH) and the digest of a static Linux program. It is an error if the linker has not set version in it: a program
// of another architecture cannot be run to ask for it.
func Inspect(program, version string) (arch, digest string, err error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return "", "", err
	}
	if arch, err = architecture(data); err != nil {
		return "", "", err
	}
	// Constants, and the versions of modules, have no zero byte at their end. Source: addstrdata of cmd/link/internal/ld/data.go.
	if !bytes.Contains(data, []byte(version+"\x00")) {
		return "", "", fmt.Errorf("it is another program or version: it does not contain the text %q", version)
	}
	sum := sha256.Sum256(data)
	return arch, hash(sum[:]).String(), nil
}

// layer is a layer in memory. The library's own layers compress with gzip, which takes more than twice as long.
type layer struct {
	packed         []byte
	digest, diffID v1.Hash
}

func newLayer(program []byte) (*layer, error) {
	var packed bytes.Buffer
	packedSum, plainSum := sha256.New(), sha256.New()
	// The digest does not depend on the number of encoders.
	z, err := zstd.NewWriter(io.MultiWriter(&packed, packedSum), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(io.MultiWriter(z, plainSum))
	err = errors.Join(
		add(t, rootsPath, 0o644, roots()),
		add(t, programPath, 0o755, program),
		t.Close(), z.Close(),
	)
	return &layer{packed.Bytes(), hash(packedSum.Sum(nil)), hash(plainSum.Sum(nil))}, err
}

func add(t *tar.Writer, name string, mode int64, data []byte) error {
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: epoch})
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	return err
}

// roots returns the CA certificates in PEM. It omits those that Mozilla trusts under conditions, which the file cannot express.
func roots() []byte {
	var out bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}) // writing to memory cannot fail
		}
	}
	return out.Bytes()
}

func hash(sum []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum)} }

func (l *layer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l *layer) DiffID() (v1.Hash, error)            { return l.diffID, nil }
func (l *layer) Size() (int64, error)                { return int64(len(l.packed)), nil }
func (l *layer) MediaType() (types.MediaType, error) { return types.OCILayerZStd, nil }
func (l *layer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.packed)), nil
}
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	z, err := zstd.NewReader(bytes.NewReader(l.packed))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

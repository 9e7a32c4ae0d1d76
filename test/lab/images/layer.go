// SPDX-License-Identifier: Apache-2.0

// Package images makes the container images of the lab. They have upstream's names and layouts, with programs built from Go modules and files from
// Debian packages. The same inputs give the same digests. It pulls nothing from a registry.
package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"yunion.io/x/ocadm/test/lab/cache"
)

// layer is a layer in the cache: a compressed archive and its metadata.
type layer struct {
	dir string
	layerFacts
}

type layerFacts struct {
	Compressed   string `json:"digest"`
	Uncompressed string `json:"diffID"`
	Bytes        int64  `json:"size"`
}

const (
	archiveFile = "layer.tar.zst"
	factsFile   = "layer.json"
)

// newLayer returns the layer with that name and content key. If it is not in the cache, content writes it.
func newLayer(ctx context.Context, name, key string, logf cache.Logf, content func(io.Writer) error) (v1.Layer, error) {
	dir, err := cache.Entry(ctx, "layers", name+"-"+key, logf, func(_ context.Context, dir string) error {
		return writeLayer(dir, content)
	})
	if err != nil {
		return nil, fmt.Errorf("making the layer %q: %w", name, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, factsFile))
	if err != nil {
		return nil, fmt.Errorf("reading the layer %q: %w", name, err)
	}
	l := layer{dir: dir}
	if err := json.Unmarshal(b, &l.layerFacts); err != nil {
		return nil, fmt.Errorf("reading the layer %q: %w", name, err)
	}
	return partial.CompressedToLayer(l)
}

func writeLayer(dir string, content func(io.Writer) error) (err error) {
	f, err := os.Create(filepath.Join(dir, archiveFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	compressed, uncompressed := sha256.New(), sha256.New()
	size := &counter{}
	z, err := zstd.NewWriter(io.MultiWriter(f, compressed, size), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	if err := errors.Join(content(io.MultiWriter(z, uncompressed)), z.Close()); err != nil {
		return err
	}
	facts, err := json.Marshal(layerFacts{
		Compressed: hex.EncodeToString(compressed.Sum(nil)), Uncompressed: hex.EncodeToString(uncompressed.Sum(nil)), Bytes: size.n,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, factsFile), facts, 0o644) //nolint:gosec // no secret
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

func (l layer) Digest() (v1.Hash, error) {
	return v1.Hash{Algorithm: "sha256", Hex: l.layerFacts.Compressed}, nil
}

func (l layer) DiffID() (v1.Hash, error) {
	return v1.Hash{Algorithm: "sha256", Hex: l.layerFacts.Uncompressed}, nil
}

func (l layer) Compressed() (io.ReadCloser, error) { return os.Open(filepath.Join(l.dir, archiveFile)) }

func (l layer) Size() (int64, error) { return l.Bytes, nil }

func (l layer) MediaType() (types.MediaType, error) { return types.OCILayerZStd, nil }

// SPDX-License-Identifier: Apache-2.0

// Package imagetest makes small images for tests.
package imagetest

import (
	"math/rand"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer returns a layer of about 30 kB of random data. Equal seeds give equal layers.
func Layer(t *testing.T, seed int64) v1.Layer {
	t.Helper()
	l, err := random.Layer(30000, types.OCILayer, random.WithSource(rand.NewSource(seed)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Image returns a Linux image for an architecture.
func Image(t *testing.T, arch string, layers ...v1.Layer) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", arch
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func binary(t *testing.T, content string) string {
	t.Helper()
	if _, err := os.Stat(certificates); err != nil {
		t.Skip("this host has no CA certificates")
	}
	file := filepath.Join(t.TempDir(), "ocadm")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A name without a registry is Docker Hub's, as in "make image-push REGISTRY=zexi VERSION=dev".
func TestNameWithoutRegistry(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := run(t.Context(), binary(t, "x"), "zexi/ocadm:dev", out, false); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("zexi/ocadm:dev")
	if err != nil {
		t.Fatal(err)
	}
	if tag.RegistryStr() != name.DefaultRegistry {
		t.Errorf("the registry is %s", tag.RegistryStr())
	}
	if _, err := tarball.ImageFromPath(out, &tag); err != nil {
		t.Error(err)
	}
}

// Pushing the same tag again replaces the image; the same content has the same digest.
func TestPushAgain(t *testing.T) {
	s := httptest.NewServer(registry.New())
	defer s.Close()
	image := strings.TrimPrefix(s.URL, "http://") + "/zexi/ocadm:dev"
	digest := func(content string) string {
		t.Helper()
		if err := run(t.Context(), binary(t, content), image, "", true); err != nil {
			t.Fatal(err)
		}
		ref, err := name.NewTag(image, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		d, err := remote.Head(ref)
		if err != nil {
			t.Fatal(err)
		}
		return d.Digest.String()
	}
	first, again, changed := digest("one"), digest("one"), digest("two")
	if first != again || first == changed {
		t.Errorf("digests: %s, %s, %s", first, again, changed)
	}
}

func TestBadName(t *testing.T) {
	if err := run(t.Context(), binary(t, "x"), "UPPER/ocadm:dev", "", false); err == nil || !strings.Contains(err.Error(), "reading -image") {
		t.Errorf("got %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/registry"
)

// copy stores an image under a root of its own. From an index it takes this node's architecture and those that it already has; a node of another
// architecture then asks for its own manifest. A prune may run meanwhile: it spares new content.
func (u *Upstream) copy(ctx context.Context, image string) error {
	digest, byDigest := digestOf(image)
	owner := Root{}
	if byDigest {
		c, err := u.store.Contents(ctx)
		if err != nil {
			return err
		}
		if d, known := u.store.manifest(ctx, c, digest); known && u.store.whole(ctx, d) {
			return nil // already copied with its tag
		}
		if owner, err = u.store.indexWith(ctx, digest); err != nil {
			return err
		}
	}
	client, err := u.Registries()
	if err != nil {
		return err
	}
	var whole v1.Descriptor
	if err := client.Read(ctx, image, u.Fetcher, func(from *registry.Image) error {
		if byDigest && from.Digest != digest {
			return fmt.Errorf("the registry sent %s", from.Digest)
		}
		whole = v1.Descriptor{MediaType: from.MediaType, Digest: from.Digest, Size: from.Size}
		return u.manifest(ctx, from, from.Descriptor, from.Raw)
	}); err != nil {
		return fmt.Errorf("copying %s: %w", image, err)
	}
	if owner.Name != "" { // a new version makes other depots copy the manifest
		return u.store.setPulled(ctx, owner.image(), owner.Images[owner.image()])
	}
	return u.store.setPulled(ctx, image, whole)
}

// digestOf returns the digest of "NAME@sha256:…".
func digestOf(image string) (digest v1.Hash, ok bool) {
	_, text, _ := strings.Cut(image, "@")
	digest, err := v1.NewHash(text)
	return digest, err == nil
}

// whole reports whether the store has everything below a manifest, or for an index, below at least one of its manifests.
func (s *Store) whole(ctx context.Context, d v1.Descriptor) bool {
	need := map[v1.Hash]int64{}
	s.below(ctx, d, false, need)
	return s.hasAll(maps.Keys(need)) && (!d.MediaType.IsIndex() || len(need) > 1)
}

// manifest stores what a manifest needs, and then the manifest itself.
func (u *Upstream) manifest(ctx context.Context, from *registry.Image, d v1.Descriptor, raw []byte) error {
	var m manifests
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("reading the manifest %s: %w", d.Digest, err)
	}
	if d.MediaType.IsIndex() {
		for _, child := range m.Manifests {
			if !u.store.has(child.Digest) && child.Platform != nil && (child.Platform.OS != "linux" || child.Platform.Architecture != u.arch) {
				continue
			}
			raw, err := from.Manifest(ctx, child.Digest)
			if err != nil {
				return err
			}
			if err := u.manifest(ctx, from, child, raw); err != nil {
				return err
			}
		}
	} else {
		for _, b := range append(m.Layers, m.Config) {
			if err := u.blob(ctx, from, b); err != nil {
				return err
			}
		}
	}
	return u.store.Put(ctx, d.Digest, int64(len(raw)), bytes.NewReader(raw))
}

func (u *Upstream) blob(ctx context.Context, from *registry.Image, b v1.Descriptor) error {
	if u.store.has(b.Digest) {
		return u.store.Put(ctx, b.Digest, b.Size, bytes.NewReader(nil)) // renews it, or a prune might remove it before it has a root
	}
	if err := u.store.roomToCopy(b.Size); err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(from.Blob(ctx, b.Digest, w)) }()
	return errors.Join(u.store.Put(ctx, b.Digest, b.Size, r), r.Close())
}

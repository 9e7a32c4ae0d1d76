// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/lists"
)

// Since names the bundle that another one continues.
type Since struct {
	// ID is the digest of its index.json.
	ID v1.Hash `json:"id"`
	// Name is its file name, without directory.
	Name string `json:"name"`
}

// ID identifies the bundle and all its content: it is the digest of index.json, which names everything else by digest.
func (b *Bundle) ID() v1.Hash { return b.id }

// Since returns the bundle that this one continues, nil if it is complete by itself.
func (b *Bundle) Since() *Since { return b.since }

// openBase opens the bundle that this one continues, in the same directory, and adds its blobs.
func (b *Bundle) openBase(ctx context.Context, since *Since) error {
	if since == nil {
		return nil
	}
	if b.since = since; since.Name != filepath.Base(since.Name) || since.Name == "." || since.Name == ".." {
		return corrupt(b.name, "it names the bundle %q as its base", since.Name)
	}
	base, err := openAs(ctx, filepath.Join(filepath.Dir(b.name), since.Name), since.ID)
	var other *otherIDError
	switch {
	case errors.As(err, &other) || errors.Is(err, os.ErrNotExist):
		return noBase(b.name, since, err)
	case err != nil:
		return err
	}
	own := b.close
	b.close = func() error { return errors.Join(own(), base.Close()) }
	for h, e := range base.blobs {
		if _, ok := b.blobs[h]; !ok {
			b.blobs[h] = e
		}
	}
	return nil
}

// otherIDError reports that a bundle is not the one that another was made since.
type otherIDError struct {
	name string
	got  v1.Hash
}

func (e *otherIDError) Error() string { return fmt.Sprintf("%s has the ID %s", e.name, e.got) }

// Reuse returns the files of the download with this hexadecimal SHA-256, to put into another bundle.
func (b *Bundle) Reuse(sha256 string) []FileSource {
	return lists.Pick(slices.Sorted(maps.Keys(b.files)), func(p string) (FileSource, bool) {
		f := b.files[p]
		return FileSource{Path: p, Mode: f.Mode, Origin: f.Origin, packed: &f.blob, there: b.blobs[f.blob.Digest]}, f.Origin != nil && f.Origin.SHA256 == sha256
	})
}

// Has reports whether the bundle, or the one that it continues, has a blob.
func (b *Bundle) Has(h v1.Hash) bool {
	_, ok := b.blobs[h]
	return ok
}

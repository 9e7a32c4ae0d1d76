// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Root is a set of names, such as one release of a cluster. What no root needs is garbage. A root without images and files was removed: it
// stays for a while, so that the depots of other control-plane nodes remove theirs too.
type Root struct {
	// Name has letters, digits, and ".", "_" and "-" between them.
	Name string `json:"name"`
	// Since is when it was stored; SetRoot sets it. Of two roots with one name, the later counts.
	Since time.Time `json:"since,omitzero"`
	// Images are manifests by the full name of their image: "registry.k8s.io/pause:3.10.2".
	Images map[string]v1.Descriptor `json:"images,omitempty"`
	// Files are by slash-separated path.
	Files map[string]File `json:"files,omitempty"`
}

// NodeRoot is the root of what a control-plane node has installed and pulled without a bundle, for its architecture only. Where another root
// has the same name, NodeRoot does not count.
const NodeRoot = "node"

// File is a file of a root.
type File struct {
	Digest v1.Hash     `json:"digest"`
	Size   int64       `json:"size"`
	Mode   fs.FileMode `json:"mode"`
}

// maxDocument bounds manifests and roots, which are read into memory.
const maxDocument = 8 << 20

var rootName = regexp.MustCompile(`^[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*$`)

// loaded is a root as it lies on the disk.
type loaded struct {
	stamp
	root Root
}

func (s *Store) rootFile(name string) string { return filepath.Join(s.rootDir(), name+".json") }

// SetRoot stores a root, in place of an older one of its name. All that it needs must be there.
func (s *Store) SetRoot(ctx context.Context, r Root) error {
	if !rootName.MatchString(r.Name) {
		return fmt.Errorf("storing the root %q: this is no name", r.Name)
	}
	if h, lacks := s.lacks(ctx, r); lacks {
		return fmt.Errorf("storing the root %s: it needs %s: %w", r.Name, h, ErrAbsent)
	}
	if r.Since.IsZero() {
		r.Since = time.Now()
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("storing the root %s: %w", r.Name, err)
	}
	temp, err := s.temp("root-*")
	if err != nil {
		return fmt.Errorf("storing the root %s: %w", r.Name, err)
	}
	_, err = temp.Write(raw)
	if err == nil {
		err = temp.Sync()
	}
	if err == nil {
		err = os.Rename(temp.Name(), s.rootFile(r.Name))
	}
	if err != nil {
		return fmt.Errorf("storing the root %s: %w", r.Name, errors.Join(err, os.Remove(temp.Name()), temp.Close()))
	}
	if err := temp.Close(); err != nil {
		return fmt.Errorf("storing the root %s: %w", r.Name, err)
	}
	return syncDir(s.rootDir())
}

func (r Root) removed() bool { return len(r.Images)+len(r.Files) == 0 }

// lacks is a blob of a root that the store does not have.
func (s *Store) lacks(ctx context.Context, r Root) (v1.Hash, bool) {
	for h := range s.reach(ctx, r) {
		if !s.has(h) {
			return h, true
		}
	}
	return v1.Hash{}, false
}

// Complete reports whether there is a root of this name with everything that it needs.
func (s *Store) Complete(ctx context.Context, name string) (bool, error) {
	roots, err := s.Roots()
	i := slices.IndexFunc(roots, func(r Root) bool { return r.Name == name })
	if err != nil || i < 0 {
		return false, err
	}
	_, lacks := s.lacks(ctx, roots[i])
	return !lacks, nil
}

// reach is every blob that a root needs, with its size. A manifest that cannot be read counts with nothing below it.
func (s *Store) reach(ctx context.Context, r Root) map[v1.Hash]int64 {
	out := map[v1.Hash]int64{}
	for _, f := range r.Files {
		out[f.Digest] = f.Size
	}
	for _, d := range r.Images {
		s.below(ctx, d, out)
	}
	return out
}

// manifests is a manifest or an index.
type manifests struct {
	v1.Manifest
	Manifests []v1.Descriptor `json:"manifests"`
}

// below adds a manifest and what it needs. Of an index, the manifests that the store has count: the others are of other architectures.
func (s *Store) below(ctx context.Context, d v1.Descriptor, out map[v1.Hash]int64) {
	out[d.Digest] = d.Size
	raw, err := s.document(ctx, d.Digest)
	if err != nil {
		return
	}
	var m manifests
	if json.Unmarshal(raw, &m) != nil {
		return
	}
	for _, child := range m.Manifests {
		if s.has(child.Digest) {
			s.below(ctx, child, out)
		}
	}
	if d.MediaType.IsIndex() {
		return
	}
	for _, b := range append(m.Layers, m.Config) {
		out[b.Digest] = b.Size
	}
}

// document reads a small blob.
func (s *Store) document(ctx context.Context, h v1.Hash) ([]byte, error) {
	f, err := s.Blob(ctx, h)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err = errors.Join(err, f.Close()); err == nil && len(raw) > maxDocument {
		err = fmt.Errorf("reading the manifest %s: it is larger than %d bytes", h, maxDocument)
	}
	return raw, err
}

// Roots are the roots, the latest first and NodeRoot last, without those that were removed. They must not be changed.
func (s *Store) Roots() ([]Root, error) {
	all, err := s.allRoots()
	all = slices.DeleteFunc(all, Root.removed)
	if i := slices.IndexFunc(all, func(r Root) bool { return r.Name == NodeRoot }); i >= 0 {
		all = append(slices.Delete(slices.Clone(all), i, i+1), all[i])
	}
	return all, err
}

// allRoots are also those that were removed.
func (s *Store) allRoots() ([]Root, error) {
	entries, err := os.ReadDir(s.rootDir())
	if err != nil {
		return nil, fmt.Errorf("listing the roots of the depot: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]loaded{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		st, err := e.Info()
		if !ok || err != nil { // gone in the meantime
			continue
		}
		l := loaded{stamp: stamp{st.Size(), st.ModTime()}}
		if old, known := s.roots[name]; known && old.stamp == l.stamp {
			now[name] = old
			continue
		}
		raw, err := os.ReadFile(s.rootFile(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(raw, &l.root)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the root %s of the depot: %w", name, err)
		}
		now[name] = l
	}
	s.roots = now
	list := slices.SortedFunc(maps.Values(now), func(a, b loaded) int {
		return cmp.Or(b.root.Since.Compare(a.root.Since), cmp.Compare(a.root.Name, b.root.Name))
	})
	out := make([]Root, len(list))
	for i, l := range list {
		out[i] = l.root
	}
	return out, nil
}

// Contents are all names of all roots; where roots differ, the first of Roots counts.
func (s *Store) Contents() (Root, error) {
	roots, err := s.Roots()
	out := Root{Images: map[string]v1.Descriptor{}, Files: map[string]File{}}
	for _, r := range slices.Backward(roots) {
		maps.Copy(out.Images, r.Images)
		maps.Copy(out.Files, r.Files)
	}
	return out, err
}

// forgotten is how long a removed root is remembered. A control-plane node that was off for longer brings its roots back.
const forgotten = 30 * 24 * time.Hour

// drop removes the roots that are not among keep, and returns the blobs that the others need.
func (s *Store) drop(ctx context.Context, keep []string) (used map[string]bool, err error) {
	roots, err := s.allRoots()
	if err != nil {
		return nil, err
	}
	used = map[string]bool{}
	for _, r := range roots {
		switch {
		case slices.Contains(keep, r.Name):
			for h := range s.reach(ctx, r) {
				used[h.Hex] = true
			}
		case !r.removed():
			err = s.SetRoot(ctx, Root{Name: r.Name})
		case time.Since(r.Since) > forgotten:
			err = os.Remove(s.rootFile(r.Name))
		}
		if err != nil {
			return nil, fmt.Errorf("removing the root %s: %w", r.Name, err)
		}
	}
	return used, nil
}

// Collect removes the roots that are not among keep, and then every blob and temporary file that no root needs and that is older than
// grace: a fill that is under way has not stored its root yet. It returns the number of bytes that it freed.
func (s *Store) Collect(ctx context.Context, keep []string, grace time.Duration) (freed int64, err error) {
	used, err := s.drop(ctx, keep)
	if err != nil {
		return 0, err
	}
	before := time.Now().Add(-grace)
	for _, dir := range []string{s.blobDir(), s.tempDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return freed, fmt.Errorf("cleaning the depot: %w", err)
		}
		for _, e := range entries {
			st, err := e.Info()
			if ctx.Err() != nil {
				return freed, context.Cause(ctx)
			}
			if err != nil || used[e.Name()] && dir == s.blobDir() || st.ModTime().After(before) {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return freed, fmt.Errorf("cleaning the depot: %w", err)
			}
			freed += st.Size()
		}
	}
	return freed, nil
}

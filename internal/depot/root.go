// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/lists"
)

// Root is a set of names, such as one release of a cluster. Content that no root needs is garbage. A root without images and files marks a removed
// one: it stays for a while, so that the depots of other control-plane nodes remove theirs too.
type Root struct {
	// Name consists of letters and digits, separated by ".", "_" and "-".
	Name string `json:"name"`
	// Version orders roots of the same name: the highest counts. SetRoot sets it above the version of every root it knows. It is not a time, because
	// the clocks of control-plane nodes differ.
	Version int64 `json:"version,omitempty"`
	// Since is the time of storage; SetRoot sets it.
	Since time.Time `json:"since,omitzero"`
	// Series groups versions of the same content: the latest of a series is always kept. A root without a series is kept only while it is in use.
	Series string `json:"series,omitempty"`
	// Whole is set if the root has all manifests that its indexes list, as that of a bundle: one that the store lacks was lost. An index that a registry
	// made also lists those of other architectures.
	Whole bool `json:"whole,omitempty"`
	// Images holds manifests by full image name: "registry.k8s.io/pause:3.10.2".
	Images map[string]v1.Descriptor `json:"images,omitempty"`
	// Files holds files by slash-separated path.
	Files map[string]File `json:"files,omitempty"`
}

// NodeRoot is the name prefix of the roots of what a control-plane node installed and pulled without a bundle, for its architecture only. Any other
// root with the same image or file name takes precedence.
const NodeRoot = "node"

// rank orders roots that have the same image or file name: the lowest wins.
func (r Root) rank() int {
	if r.pulled() {
		return 2
	}
	if r.Name == NodeRoot || strings.HasPrefix(r.Name, NodeRoot+"-") {
		return 1
	}
	return 0
}

// The series of bundles, of ocadm, and of a node's own content.
func BundleSeries(platforms ...string) string { return "bundle " + strings.Join(platforms, " ") }
func ProgramSeries(arch string) string        { return "ocadm " + arch }
func NodeSeries(node string) string           { return "node " + node }

// series derives the series of a root stored by an earlier release from its name: such roots had one architecture.
func (r Root) series() string {
	if r.Version > 0 {
		return r.Series
	}
	switch kind, _, _ := strings.Cut(r.Name, "-"); kind {
	case "bundle":
		return BundleSeries("linux/" + runtime.GOARCH)
	case "ocadm":
		return ProgramSeries(runtime.GOARCH)
	default:
		return kind
	}
}

// newer reports whether r replaces another root of its name. The result is the same on every node, even if two nodes made different roots at the same
// time: then content wins over removal.
func (r Root) newer(than Root) bool {
	switch {
	case r.Version != than.Version:
		return r.Version > than.Version
	case r.Version > 0 && r.removed() != than.removed():
		return than.removed()
	case !r.Since.Equal(than.Since):
		return r.Since.After(than.Since)
	}
	a, aerr := json.Marshal(r)
	b, berr := json.Marshal(than)
	return aerr == nil && berr == nil && bytes.Compare(a, b) > 0
}

// File is a file of a root.
type File struct {
	Digest v1.Hash     `json:"digest"`
	Size   int64       `json:"size"`
	Mode   fs.FileMode `json:"mode"`
}

func (f File) digestAndSize() (v1.Hash, int64) { return f.Digest, f.Size }

// maxDocument bounds manifests and roots, which are read into memory.
const maxDocument = 8 << 20

var rootName = regexp.MustCompile(`^[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*$`)

type loaded struct {
	stamp
	root Root
}

func (s *Store) rootFile(name string) string { return filepath.Join(s.rootDir(), name+".json") }

// SetRoot stores a root, replacing an older one of the same name. Everything that it needs must already be stored.
func (s *Store) SetRoot(ctx context.Context, r Root) error {
	if !rootName.MatchString(r.Name) {
		return fmt.Errorf("storing the root %q: this is not a valid name", r.Name)
	}
	if h, lacks := s.lacks(ctx, r); lacks {
		return fmt.Errorf("storing the root %s: it needs %s: %w", r.Name, h, ErrAbsent)
	}
	if r.Since.IsZero() {
		r.Since = time.Now()
	}
	if r.Version == 0 {
		known, err := s.allRoots()
		if err != nil {
			return err
		}
		for _, k := range known {
			r.Version = max(r.Version, k.Version)
		}
		r.Version++
	}
	if err := s.placeJSON(s.rootFile(r.Name), r); err != nil {
		return fmt.Errorf("storing the root %s: %w", r.Name, err)
	}
	return nil
}

func (r Root) removed() bool { return len(r.Images)+len(r.Files) == 0 }

// lacks returns a blob that the root needs and the store does not have.
func (s *Store) lacks(ctx context.Context, r Root) (v1.Hash, bool) {
	for h := range s.reach(ctx, r) {
		if !s.has(h) {
			return h, true
		}
	}
	return v1.Hash{}, false
}

// Complete reports whether there is a root of this name and the store has everything that it needs.
func (s *Store) Complete(ctx context.Context, name string) (bool, error) {
	r, err := s.Root(name)
	if err != nil || r.Name == "" {
		return false, err
	}
	_, lacks := s.lacks(ctx, r)
	return !lacks, nil
}

// reach returns every blob that a root needs, with its size. If a manifest cannot be read, it counts without anything below it.
func (s *Store) reach(ctx context.Context, r Root) map[v1.Hash]int64 {
	out := lists.Index(slices.Collect(maps.Values(r.Files)), File.digestAndSize)
	for _, d := range r.Images {
		s.below(ctx, d, r.Whole, out)
	}
	return out
}

type manifests struct {
	v1.Manifest
	Manifests []v1.Descriptor `json:"manifests"`
}

// below adds a manifest and what it needs. Of an index, it adds all manifests or only those that the store has, see Root.Whole.
func (s *Store) below(ctx context.Context, d v1.Descriptor, all bool, out map[v1.Hash]int64) {
	out[d.Digest] = d.Size
	var m manifests
	if s.read(ctx, d.Digest, &m) != nil {
		return
	}
	for _, child := range m.Manifests {
		if all || s.has(child.Digest) {
			s.below(ctx, child, all, out)
		}
	}
	if d.MediaType.IsIndex() {
		return
	}
	for _, b := range append(m.Layers, m.Config) {
		out[b.Digest] = b.Size
	}
}

func (s *Store) read(ctx context.Context, h v1.Hash, into any) error {
	f, err := s.Blob(ctx, h)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err = errors.Join(err, f.Close()); err == nil && len(raw) > maxDocument {
		err = fmt.Errorf("reading the manifest %s: it is larger than %d bytes", h, maxDocument)
	}
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	return err
}

// Roots returns the roots in order of precedence, without removed ones: the latest first, but those of nodes last. Callers must not change them.
func (s *Store) Roots() ([]Root, error) {
	list, _, err := s.ranked()
	return list, err
}

// Root returns the root of a name, or an empty one.
func (s *Store) Root(name string) (Root, error) {
	all, err := s.Roots()
	return lists.First(all, func(r Root) bool { return r.Name == name }), err
}

// Remove removes a root if it exists. What it needed is garbage until the next prune.
func (s *Store) Remove(ctx context.Context, name string) error {
	r, err := s.Root(name)
	if err != nil || r.Name == "" {
		return err
	}
	return s.SetRoot(ctx, Root{Name: name})
}

func (s *Store) ranked() (list []Root, state string, err error) {
	list, state, err = s.readRoots()
	list = slices.DeleteFunc(list, Root.removed)
	slices.SortStableFunc(list, func(a, b Root) int { return cmp.Compare(a.rank(), b.rank()) })
	return list, state, err
}

// allRoots includes removed roots.
func (s *Store) allRoots() ([]Root, error) {
	list, _, err := s.readRoots()
	return list, err
}

// readRoots also returns an identifier for this state of the roots.
func (s *Store) readRoots() (list []Root, state string, err error) {
	entries, err := os.ReadDir(s.rootDir())
	if err != nil {
		return nil, "", fmt.Errorf("listing the roots of the depot: %w", err)
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
		if err != nil {
			return nil, "", fmt.Errorf("reading the root %s of the depot: %w", name, err)
		}
		if err := json.Unmarshal(raw, &l.root); err != nil {
			slog.Warn("the depot lost a root, which was damaged on the disk; another depot or a bundle brings it back", "root", name, "err", err)
			l.root = Root{Name: name} // older than any other of its name
		}
		now[name] = l
	}
	s.roots = now
	sorted := slices.SortedFunc(maps.Values(now), func(a, b loaded) int {
		return cmp.Or(cmp.Compare(b.root.Version, a.root.Version), b.root.Since.Compare(a.root.Since), cmp.Compare(a.root.Name, b.root.Name))
	})
	text := []byte("roots")
	for _, l := range sorted {
		list = append(list, l.root)
		text = fmt.Appendf(text, " %s %d %d", l.root.Name, l.size, l.modified.UnixNano())
	}
	return list, string(text), nil
}

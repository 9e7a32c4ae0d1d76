// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
)

// root is a root that the depot of this node should have.
type root struct {
	name string
	done func(context.Context, *depot.Store) (bool, error)
	fill func(context.Context, *depot.Store, func(done, total int64)) error
}

func roots(ctx context.Context, h *host.Host) []root {
	list := []root{ownProgram(h).root(h, programImages(h))}
	if !h.Bundled() {
		return append(list, nodeRoot(ctx, h))
	}
	if h.Bundle == nil {
		return append(append(list, servedRoot(h.Depot)), servedPrograms(h)...)
	}
	name := bundleName(h)
	list = append(list, root{name,
		func(ctx context.Context, s *depot.Store) (bool, error) { return s.Complete(ctx, name) },
		func(ctx context.Context, s *depot.Store, p func(done, total int64)) error {
			return s.Fill(ctx, name, h.Bundle, p)
		},
	})
	return append(list, bundledPrograms(h)...)
}

// bundleName returns a name derived from the bundle's content.
func bundleName(h *host.Host) string {
	raw, err := json.Marshal(h.Bundle.Contents())
	if err != nil {
		panic(err) // plain values cannot fail
	}
	return "bundle-" + fmt.Sprintf("%x", sha256.Sum256(raw))[:12]
}

// outstanding returns the roots that are missing or incomplete in the depot. Without a depot, these are all roots.
func outstanding(ctx context.Context, h *host.Host) (todo []root, err error) {
	list := roots(ctx, h)
	if !h.Files.Exists(depot.DefaultDir) {
		return list, nil
	}
	s, err := Open(h)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		done, err := r.done(ctx, s)
		if err != nil {
			return nil, err
		}
		if !done {
			todo = append(todo, r)
		}
	}
	return todo, nil
}

// store fills a root while garbage collection is blocked.
func store(ctx context.Context, s *depot.Store, r root, p func(done, total int64)) error {
	return s.Storing(ctx, func() error { return r.fill(ctx, s, p) })
}

// Has reports whether this machine has a depot.
func Has(h *host.Host) bool { return h.Files.Exists(manifestFile) }

// nodeRoot returns the root of what this node has installed and pulled, for installations without a bundle. Each control-plane node has its own.
func nodeRoot(ctx context.Context, h *host.Host) root {
	name := depot.NodeRoot + "-" + h.Config.Node.Name
	want := node.Installed(ctx, h)
	return root{name,
		func(ctx context.Context, s *depot.Store) (bool, error) {
			own, err := s.Root(name)
			if complete, cerr := s.Complete(ctx, name); err != nil || cerr != nil || !complete {
				return false, errors.Join(err, cerr)
			}
			for _, i := range want.Images {
				if _, ok := own.Images[i]; !ok {
					return false, nil
				}
			}
			for _, f := range want.Files {
				digest, err := h.Files.Digest(f)
				if err != nil || own.Files[path.Join("linux", h.Facts.Arch, f)].Digest.String() != digest {
					return false, err
				}
			}
			return true, nil
		},
		func(ctx context.Context, s *depot.Store, p func(done, total int64)) error {
			r := depot.Root{Name: name, Series: depot.NodeSeries(h.Config.Node.Name), Files: map[string]depot.File{}}
			var done int64
			for _, f := range want.Files {
				var err error
				if r.Files[path.Join("linux", h.Facts.Arch, f)], err = s.AddFile(ctx, h.Files.Path(f)); err != nil {
					return err
				}
			}
			err := node.Export(ctx, h, want.Images, func(in io.Reader) (err error) {
				r.Images, err = s.AddArchive(ctx, fetch.Reader(ctx, in, func(n int64) { done += n; p(done, 0) }))
				return err
			})
			if err != nil {
				return err
			}
			if err := s.SetRoot(ctx, r); err != nil {
				return err
			}
			return s.Remove(ctx, depot.NodeRoot) // an earlier release used this name on every node
		},
	}
}

// Lacking returns, as lines of a plan, the roots that this machine's depot lacks.
func Lacking(ctx context.Context, h *host.Host) ([]string, error) {
	todo, err := outstanding(ctx, h)
	return lists.Map(todo, func(root root) string { return "store " + root.name + " in " + depot.DefaultDir }), err
}

// Fill stores the roots that Lacking returns.
func Fill(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	s, err := Open(h)
	if err != nil {
		return err
	}
	for _, root := range roots(ctx, h) {
		if done, err := root.done(ctx, s); err != nil { // what was stored before may include this root
			return err
		} else if done {
			continue
		}
		if err := store(ctx, s, root, func(done, total int64) { r.Progress(done, total, "B") }); err != nil {
			return err
		}
		r.Changed("stored %s in %s", root.name, depot.DefaultDir)
	}
	free, err := s.Free()
	if err == nil {
		r.Info("the disk of %s has %s left", depot.DefaultDir, ui.Bytes(free))
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
)

// ProgramPath is where ocadm is, on a node and, after the platform, in the depot.
const ProgramPath = "/usr/local/bin/ocadm"

// root is one root that the depot of this node should have.
type root struct {
	name string
	done func(context.Context, *depot.Store) (bool, error)
	fill func(context.Context, *depot.Store, func(done, total int64)) error
}

func roots(ctx context.Context, h *host.Host) []root {
	list := []root{programRoot(h, programName(), programImages(h))}
	if !h.Bundled() {
		return append(list, nodeRoot(ctx, h))
	}
	if h.Bundle == nil {
		return append(list, servedRoot(h.Depot))
	}
	name := bundleName(h)
	return append(list, root{name,
		func(ctx context.Context, s *depot.Store) (bool, error) { return s.Complete(ctx, name) },
		func(ctx context.Context, s *depot.Store, p func(done, total int64)) error {
			return s.Fill(ctx, name, h.Bundle, p)
		},
	})
}

// bundleName is the same for bundles of the same content.
func bundleName(h *host.Host) string {
	raw, err := json.Marshal(h.Bundle.Contents())
	if err != nil {
		panic(err) // plain values
	}
	sum := sha256.Sum256(raw)
	return "bundle-" + hex.EncodeToString(sum[:6])
}

// outstanding are the roots that the depot lacks, or has not in full. Without a depot that is all of them.
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

func fill(ctx context.Context, h *host.Host, s *depot.Store, r workflow.Reporter) error {
	todo, err := outstanding(ctx, h)
	if err != nil {
		return err
	}
	for _, root := range todo {
		if err := root.fill(ctx, s, func(done, total int64) { r.Progress(done, total, "B") }); err != nil {
			return err
		}
		r.Changed("stored %s in %s", root.name, depot.DefaultDir)
	}
	return nil
}

// Has reports whether this machine has a depot.
func Has(h *host.Host) bool { return h.Files.Exists(manifestFile) }

// StoreProgram stores this program under the name of an image, and reports whether this machine has a depot that it is in.
func StoreProgram(ctx context.Context, h *host.Host, r workflow.Reporter, image string) (bool, error) {
	if !Has(h) {
		return false, nil
	}
	s, err := Open(h)
	if err != nil {
		return false, err
	}
	root := programRoot(h, programName(), []string{image})
	if done, err := root.done(ctx, s); done || err != nil {
		return done, err
	}
	if err := root.fill(ctx, s, func(done, total int64) {}); err != nil {
		return false, err
	}
	r.Changed("stored %s in %s", image, depot.DefaultDir)
	return true, nil
}

// programName is the root of this program.
func programName() string {
	return "ocadm-" + strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", r) {
			return r
		}
		return '.'
	}, version.Version), ".-")
}

// programImages are the names under which nodes look for this program as an image.
func programImages(h *host.Host) []string {
	if !h.Config.PacksOperator() {
		return nil
	}
	return []string{h.Config.OperatorImage()}
}

// programRoot is this program, as a file and under the names of images.
func programRoot(h *host.Host, name string, images []string) root {
	file := path.Join("linux", h.Facts.Arch, ProgramPath)
	return root{name,
		func(ctx context.Context, s *depot.Store) (bool, error) {
			complete, err := s.Complete(ctx, name)
			if err != nil || !complete {
				return false, err
			}
			c, err := s.Contents()
			if err != nil {
				return false, err
			}
			digest, err := h.Files.Digest(h.Self)
			if err != nil {
				return false, fmt.Errorf("reading this program: %w", err)
			}
			return c.Files[file].Digest.String() == digest && !slices.ContainsFunc(images, func(i string) bool { return c.Images[i].Digest == v1.Hash{} }), nil
		},
		func(ctx context.Context, s *depot.Store, _ func(done, total int64)) error {
			r := depot.Root{Name: name, Images: map[string]v1.Descriptor{}, Files: map[string]depot.File{}}
			var err error
			if r.Files[file], err = s.AddFile(ctx, h.Files.Path(h.Self)); err != nil {
				return err
			}
			before, err := s.Roots() // of a build with the same version, which may have more names
			if err != nil {
				return err
			}
			names := slices.Clone(images)
			for _, b := range before {
				if b.Name == name {
					names = slices.AppendSeq(names, maps.Keys(b.Images))
				}
			}
			for _, image := range names {
				ref, err := ownimage.Reference(image, version.Version, false)
				if err != nil {
					return err
				}
				img, err := h.Own()
				if err != nil {
					return err
				}
				if r.Images[ownimage.FullName(ref)], err = s.AddImage(ctx, img); err != nil {
					return err
				}
			}
			return s.SetRoot(ctx, r)
		},
	}
}

// nodeRoot is what this node has installed and pulled, where there is no bundle.
func nodeRoot(ctx context.Context, h *host.Host) root {
	const name = depot.NodeRoot
	want := node.Installed(ctx, h)
	return root{name,
		func(ctx context.Context, s *depot.Store) (bool, error) {
			complete, err := s.Complete(ctx, name)
			if err != nil || !complete {
				return false, err
			}
			all, err := s.Roots()
			if err != nil {
				return false, err
			}
			var own depot.Root
			for _, r := range all {
				if r.Name == name {
					own = r
				}
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
			r := depot.Root{Name: name, Files: map[string]depot.File{}}
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
			return s.SetRoot(ctx, r)
		},
	}
}

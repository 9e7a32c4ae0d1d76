// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// ProgramPath is the path of ocadm on a node, in a bundle and, after the platform, in the depot.
const ProgramPath = "/usr/local/bin/ocadm"

const programMode = 0o755

// program is an ocadm binary for one architecture.
type program struct {
	arch string
	// digest returns the digest of the file as the depot has it.
	digest func() (string, error)
	// open opens the file, and image packs it.
	open  func(context.Context, *depot.Store) (*os.File, error)
	image func(file string) (v1.Image, error)
}

func ownProgram(h *host.Host) program {
	return program{h.Facts.Arch,
		func() (string, error) { return h.Files.Digest(h.Self) },
		func(context.Context, *depot.Store) (*os.File, error) { return os.Open(h.Files.Path(h.Self)) },
		func(string) (v1.Image, error) { return h.Own() },
	}
}

// otherProgram returns a program for another architecture.
func otherProgram(arch, digest string, open func(context.Context, *depot.Store) (*os.File, error)) program {
	return program{arch, func() (string, error) { return digest, nil }, open, ownimage.Pack}
}

// bundledPrograms returns the programs of this version that the bundle has for other architectures. They are stored after the bundle itself.
func bundledPrograms(h *host.Host) (out []root) {
	for _, view := range h.Bundle.Views() {
		c := view.Contents()
		i := slices.IndexFunc(c.Files, func(f bundle.FileInfo) bool { return f.Path == ProgramPath })
		if i < 0 || c.Info.Arch == h.Facts.Arch || c.Info.Versions["ocadm"] != version.Version {
			continue
		}
		p := otherProgram(c.Info.Arch, c.Files[i].Digest, func(ctx context.Context, s *depot.Store) (*os.File, error) {
			digest, err := v1.NewHash(c.Files[i].Digest)
			if err != nil {
				return nil, err
			}
			return s.Blob(ctx, digest)
		})
		out = append(out, p.root(h, programImages(h)))
	}
	return out
}

// servedPrograms returns the programs that the bundle server has for other architectures. Only the programs themselves show their version: one of
// another version stays a plain file. They are stored after everything else from the server.
func servedPrograms(h *host.Host) (out []root) {
	for arch, f := range h.Depot.FileOf(ProgramPath) {
		if arch == h.Facts.Arch {
			continue
		}
		p := otherProgram(arch, f.Digest.String(), func(ctx context.Context, s *depot.Store) (*os.File, error) { return s.Blob(ctx, f.Digest) })
		r := p.root(h, programImages(h))
		done, fill := r.done, r.fill
		r.done = func(ctx context.Context, s *depot.Store) (bool, error) {
			if is, err := thisVersion(ctx, s, f.Digest); err == nil && !is {
				return true, nil
			}
			return done(ctx, s)
		}
		r.fill = func(ctx context.Context, s *depot.Store, progress func(done, total int64)) error {
			if is, err := thisVersion(ctx, s, f.Digest); err != nil || !is {
				return err
			}
			return fill(ctx, s, progress)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b root) int { return strings.Compare(a.name, b.name) })
	return out
}

// thisVersion reports whether a program in the depot is ocadm of this version.
func thisVersion(ctx context.Context, s *depot.Store, digest v1.Hash) (bool, error) {
	f, err := s.Blob(ctx, digest)
	if err != nil {
		return false, err
	}
	_, _, err = ownimage.Inspect(f.Name(), version.Version)
	return err == nil, f.Close()
}

var notInRoots = regexp.MustCompile(`[^0-9A-Za-z.-]`)

// programName returns the name of this node's root for this version and an architecture.
func programName(h *host.Host, arch string) string {
	return strings.Trim("ocadm-"+strings.Trim(notInRoots.ReplaceAllString(version.Version, "."), ".-")+"-"+arch+"-"+h.Config.Node.Name, "-")
}

// programImages returns the image names under which nodes look for this program.
func programImages(h *host.Host) []string {
	if !h.Config.PacksOperator() {
		return nil
	}
	return []string{h.Config.OperatorImage()}
}

// root returns the root that stores a program as a file and under the names of images. Each architecture has its own root: the depot serves their images as one.
func (p program) root(h *host.Host, images []string) root {
	name, file := programName(h, p.arch), path.Join("linux", p.arch, ProgramPath)
	return root{name,
		func(ctx context.Context, s *depot.Store) (bool, error) {
			complete, err := s.Complete(ctx, name)
			if err != nil || !complete {
				return false, err
			}
			own, err := s.Root(name)
			if err != nil {
				return false, err
			}
			digest, err := p.digest()
			if err != nil {
				return false, fmt.Errorf("reading this program: %w", err)
			}
			return own.Files[file].Digest.String() == digest && !slices.ContainsFunc(images, func(i string) bool { return own.Images[i].Digest == v1.Hash{} }), nil
		},
		func(ctx context.Context, s *depot.Store, _ func(done, total int64)) (err error) {
			program, err := p.open(ctx, s)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, program.Close()) }()
			r := depot.Root{Name: name, Series: depot.ProgramSeries(p.arch), Images: map[string]v1.Descriptor{}, Files: map[string]depot.File{}}
			f, err := s.AddFile(ctx, program.Name())
			if err != nil {
				return err
			}
			f.Mode = programMode
			r.Files[file] = f
			before, err := s.Root(name) // a build with the same version may have left more names
			if err != nil {
				return err
			}
			for _, image := range slices.AppendSeq(slices.Clone(images), maps.Keys(before.Images)) {
				ref, err := ownimage.Reference(image, version.Version, false)
				if err != nil {
					return err
				}
				img, err := p.image(program.Name())
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

// StoreProgram stores this program under the name of an image. It reports whether this machine has a depot.
func StoreProgram(ctx context.Context, h *host.Host, r workflow.Reporter, image string) (bool, error) {
	if !Has(h) {
		return false, nil
	}
	return true, ownProgram(h).store(ctx, h, r, image)
}

func (p program) store(ctx context.Context, h *host.Host, r workflow.Reporter, image string) error {
	s, err := Open(h)
	if err != nil {
		return err
	}
	root := p.root(h, []string{image})
	if done, err := root.done(ctx, s); done || err != nil {
		return err
	}
	if err := store(ctx, s, root, func(done, total int64) {}); err != nil {
		return err
	}
	r.Changed("stored %s for %s in %s", image, p.arch, depot.DefaultDir)
	return nil
}

// The findings about a program for another architecture.
const (
	CodeOtherProgram = "OCA-2332"
	CodeLacksProgram = "OCA-2333"
)

// AddProgram stores the ocadm of another architecture, read from a file, under the name of an image. It returns the architecture.
func AddProgram(ctx context.Context, h *host.Host, r workflow.Reporter, file, image string) (string, error) {
	arch, digest, err := ownimage.Inspect(file, version.Version)
	if err != nil {
		return "", finding.Errorf(CodeOtherProgram, file+" is not this version of ocadm", "give the ocadm of the release "+version.Version+" for the other architecture", "%w", err)
	}
	p := otherProgram(arch, digest, func(context.Context, *depot.Store) (*os.File, error) { return os.Open(file) })
	return arch, p.store(ctx, h, r, image)
}

// Lacks returns an error that lists the node architectures for which the depot has no program under the name of an image.
func Lacks(ctx context.Context, h *host.Host, image string, archs []string) error {
	s, err := Open(h)
	if err != nil {
		return err
	}
	has, err := s.Architectures(ctx, image)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(archs), func(a string) bool { return slices.Contains(has, a) })
	if len(missing) == 0 {
		return nil
	}
	return finding.New(CodeLacksProgram, "The depot has no "+image+" for "+strings.Join(missing, " and "),
		"nodes of that architecture pull the operator's image from the depot",
		"with ocadm "+version.Version+" for "+missing[0]+", from its release: ocadm depot add FILE; then run the command again")
}

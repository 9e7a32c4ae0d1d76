// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// Remote is the content of a depot for one architecture, from which a node can be installed.
type Remote struct {
	client    *Client
	root      Root // for all architectures
	inUse     []string
	contents  bundle.Contents
	files     map[string]File
	manifests map[string]v1.Descriptor
}

// Remote asks for the depot's content for an architecture (a GOARCH).
func (c *Client) Remote(ctx context.Context, arch string) (*Remote, error) {
	all, err := c.Contents(ctx)
	if err != nil {
		return nil, err
	}
	root := all.Root
	r := &Remote{client: c, root: root, inUse: all.InUse, files: map[string]File{}, manifests: map[string]v1.Descriptor{}}
	r.contents.Info = bundle.Info{OS: "linux", Arch: arch}
	for name, f := range root.Files {
		if path, ok := strings.CutPrefix(name, "linux/"+arch+"/"); ok {
			r.files["/"+path] = f
			r.contents.Files = append(r.contents.Files, bundle.FileInfo{Path: "/" + path, Mode: f.Mode, Digest: f.Digest.String(), Size: f.Size})
		}
	}
	for name, d := range root.Images {
		if d, err = c.forArch(ctx, d, arch); err != nil {
			return nil, err
		}
		if d.Size > 0 {
			r.manifests[name] = d
			r.contents.Images = append(r.contents.Images, bundle.ImageInfo{Name: name, Digest: d.Digest.String()})
		}
	}
	slices.SortFunc(r.contents.Files, func(a, b bundle.FileInfo) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(r.contents.Images, func(a, b bundle.ImageInfo) int { return cmp.Compare(a.Name, b.Name) })
	return r, nil
}

// FileOf returns the files of a path, by architecture (a GOARCH).
func (r *Remote) FileOf(path string) map[string]File {
	return r.root.fileOf(path)
}

func (r Root) fileOf(path string) map[string]File {
	out := map[string]File{}
	for _, arch := range architectures(r) {
		if f, ok := r.Files["linux/"+arch+path]; ok {
			out[arch] = f
		}
	}
	return out
}

// CheckArchitecture returns a finding if the depot has programs, but not for this architecture.
func (r *Remote) CheckArchitecture() error {
	if arch := r.contents.Info.Arch; len(r.files) == 0 && len(r.root.Files) > 0 {
		return finding.New(CodeNoArchitecture, fmt.Sprintf("The depot at %s has no programs for %s", r.client.address, arch),
			"its files are for "+strings.Join(architectures(r.root), ", "),
			"on the control plane: ocadm init phase depot --bundle FILE, with a bundle for "+arch+"; or give this command --bundle FILE")
	}
	return nil
}

func architectures(r Root) []string {
	var out []string
	for name := range r.Files {
		if rest, linux := strings.CutPrefix(name, "linux/"); linux {
			arch, _, _ := strings.Cut(rest, "/")
			out = append(out, arch)
		}
	}
	return lists.Distinct(out)
}

// forArch returns the manifest of an architecture, or nothing if the image is for others.
func (c *Client) forArch(ctx context.Context, d v1.Descriptor, arch string) (v1.Descriptor, error) {
	if !d.MediaType.IsIndex() {
		has, err := c.archOf(ctx, d)
		if err != nil || has != arch && has != "" {
			return v1.Descriptor{}, err
		}
		return d, nil
	}
	var index v1.IndexManifest
	if err := c.document(ctx, d, &index); err != nil {
		return v1.Descriptor{}, err
	}
	return lists.First(index.Manifests, func(m v1.Descriptor) bool {
		return m.Platform != nil && m.Platform.OS == "linux" && m.Platform.Architecture == arch
	}), nil
}

// archOf returns the architecture in an image's descriptor or, failing that, its config; "" if neither names one, or if the depot has lost them: that
// matters only to those who need the image.
func (c *Client) archOf(ctx context.Context, d v1.Descriptor) (string, error) {
	if d.Platform != nil {
		return d.Platform.Architecture, nil
	}
	var m v1.Manifest
	var config struct {
		Architecture string `json:"architecture"`
	}
	err := c.document(ctx, d, &m)
	if err == nil {
		err = c.document(ctx, m.Config, &config)
	}
	if l := finding.Of(err); len(l) == 1 && l[0].Code == CodeNoBlob {
		return "", nil
	}
	return config.Architecture, err
}

// Name returns a description of the depot for a sentence.
func (r *Remote) Name() string { return "the depot at " + r.client.address }

// Contents returns the files and images. Image sizes are unknown.
func (r *Remote) Contents() bundle.Contents {
	c := r.contents
	c.Files, c.Images = slices.Clone(c.Files), slices.Clone(c.Images)
	return c
}

// OpenFile returns a reader that downloads a file. Reading fails at the end if the content is wrong.
func (r *Remote) OpenFile(ctx context.Context, path string) (io.ReadCloser, error) {
	f, ok := r.files[path]
	if !ok {
		return nil, fmt.Errorf("opening %s of %s: %w", path, r.Name(), fs.ErrNotExist)
	}
	return r.client.Open(ctx, f.Digest), nil
}

// Archive returns a function that writes the named images as an OCI image layout that "ctr images import" accepts, and the approximate size of the
// output.
func (r *Remote) Archive(ctx context.Context, names []string) (size int64, write func(io.Writer) error, err error) {
	var index, blobs []v1.Descriptor
	for _, name := range names {
		d, ok := r.manifests[name]
		if !ok {
			return 0, nil, fmt.Errorf("downloading the image %s from %s: %w", name, r.Name(), ErrAbsent)
		}
		var m v1.Manifest
		if err := r.client.document(ctx, d, &m); err != nil {
			return 0, nil, err
		}
		index = append(index, bundle.Named(name, d))
		blobs = append(append(blobs, d, m.Config), m.Layers...)
	}
	blobs = distinct(blobs)
	return lists.Sum(blobs, func(b v1.Descriptor) int64 { return b.Size }), func(w io.Writer) error {
		return bundle.WriteLayout(w, index, blobs, func(w io.Writer, h v1.Hash) error {
			err := r.client.Blob(ctx, h, w, func(int64) {})
			if errors.Is(err, io.ErrClosedPipe) { // the reader stopped early
				return io.ErrClosedPipe
			}
			return err
		})
	}, nil
}

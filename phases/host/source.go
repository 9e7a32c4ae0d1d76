// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io"

	"yunion.io/x/ocadm/internal/bundle"
)

// Source provides the programs and images of a node without internet access.
type Source interface {
	// Name describes the source within a sentence.
	Name() string
	Contents() bundle.Contents
	// OpenFile opens a file. Reading to the end fails if the content is wrong: use nothing before that.
	OpenFile(ctx context.Context, path string) (io.ReadCloser, error)
	// Archive returns a function that writes an archive of images for "ctr images import", and its approximate size in bytes.
	Archive(ctx context.Context, names []string) (size int64, write func(io.Writer) error, err error)
	// CheckPlatform returns a finding if the source is for another architecture (a GOARCH) or another version of Kubernetes.
	CheckPlatform(arch, kubernetes string) error
	// CheckImages returns a finding that names the images that the source lacks.
	CheckImages(images []string) error
}

// Bundled reports whether the source is a bundle, local or served: it must contain everything that a run needs. The cluster's depot may lack images.
func (h *Host) Bundled() bool {
	return h.Bundle != nil || h.Depot != nil && h.Config.Node.BundleServed()
}

// Source returns the bundle, else the cluster's depot, or nil without either.
func (h *Host) Source() Source {
	switch {
	case h.Bundle != nil:
		return bundleSource{h.Bundle}
	case h.Depot != nil:
		return h.Depot
	}
	return nil
}

type bundleSource struct{ *bundle.Bundle }

func (b bundleSource) Name() string { return "the bundle " + b.Bundle.Name() }

func (b bundleSource) OpenFile(_ context.Context, path string) (io.ReadCloser, error) {
	return b.Bundle.OpenFile(path)
}

func (b bundleSource) Archive(ctx context.Context, names []string) (int64, func(io.Writer) error, error) {
	return b.ImagesSize(names), func(w io.Writer) error { return b.WriteImages(ctx, w, names) }, nil
}

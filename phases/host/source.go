// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io"

	"yunion.io/x/ocadm/internal/bundle"
)

// Source is where the programs and images of a node come from without the internet.
type Source interface {
	// Name describes it in a sentence.
	Name() string
	Contents() bundle.Contents
	// OpenFile opens a file. Reading to its end fails when the content is not the right one: use nothing of it before.
	OpenFile(ctx context.Context, path string) (io.ReadCloser, error)
	// Archive returns how to write an archive of images for "ctr images import", and about how many bytes it has.
	Archive(ctx context.Context, names []string) (size int64, write func(io.Writer) error, err error)
	// CheckPlatform returns a finding if it is for another architecture (a GOARCH) or another version of Kubernetes.
	CheckPlatform(arch, kubernetes string) error
	// CheckImages returns a finding that names the images that it lacks.
	CheckImages(images []string) error
}

// Bundled reports whether the source is a bundle, as a file or served: what a run needs must be in it. A depot of the cluster may lack images.
func (h *Host) Bundled() bool {
	return h.Bundle != nil || h.Depot != nil && h.Config.Node.BundleServed()
}

// Source is the bundle, or else the cluster's depot; nil without both.
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

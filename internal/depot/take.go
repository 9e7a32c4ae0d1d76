// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// ID identifies the content: servers have the same ID if and only if their content is the same.
func (r *Remote) ID() string {
	raw, err := json.Marshal(Root{Images: r.root.Images, Files: r.root.Files})
	if err != nil {
		panic(err) // plain values always marshal
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))[:12]
}

// Size returns the total size of the images and files of all architectures, in bytes.
func (r *Remote) Size(ctx context.Context) (size int64, err error) {
	blobs, err := needs(r.root, func(d v1.Descriptor, into any) error { return r.client.document(ctx, d, into) })
	for _, n := range blobs {
		size += n
	}
	return size, err
}

// Take stores everything that another depot has, for all architectures, under a root. progress receives the number of bytes stored so far. Blobs
// stored by an interrupted Take are not copied again.
func (s *Store) Take(ctx context.Context, root string, r *Remote, progress func(done, total int64)) error {
	return s.Storing(ctx, func() error {
		return s.copyRoot(ctx, r.client, Root{Name: root, Series: r.series(), Images: r.root.Images, Files: r.root.Files}, progress)
	})
}

// series returns the series of a bundle for the platforms of the files.
func (r *Remote) series() string {
	platforms := lists.Map(architectures(r.root), func(arch string) string { return "linux/" + arch })
	return BundleSeries(platforms...)
}

// CheckPlatform returns a finding if the depot has nothing for an architecture (a GOARCH), or another Kubernetes version. The tags of the
// control-plane images give the version.
func (r *Remote) CheckPlatform(arch, kubernetes string) error {
	if len(r.contents.Files)+len(r.contents.Images) == 0 || arch != r.contents.Info.Arch {
		return finding.New(bundle.CodeWrongPlatform, fmt.Sprintf("%s has nothing for linux/%s", r.title(), arch), "",
			"serve a bundle that was created with --arch "+arch)
	}
	have := lists.Pick(r.contents.Images, func(i bundle.ImageInfo) (string, bool) {
		return strings.CutPrefix(path.Base(i.Name), "kube-apiserver:")
	})
	if kubernetes == "" || len(have) == 0 || slices.Contains(have, kubernetes) {
		return nil
	}
	return finding.New(bundle.CodeWrongVersion, fmt.Sprintf("%s is for Kubernetes %s, and %s is to be installed", r.title(), strings.Join(have, ", "), kubernetes), "",
		fmt.Sprintf("add --kubernetes-version %s; or serve a bundle that was created with --kubernetes-version %s", have[0], kubernetes))
}

// CheckImages returns a finding that names the images that the depot lacks.
func (r *Remote) CheckImages(images []string) error {
	missing := lists.Filter(images, func(i string) bool {
		_, ok := r.manifests[i]
		return !ok
	})
	if len(missing) == 0 {
		return nil
	}
	return bundle.LackingImages(r.title()+" lacks images that this run needs", "it", slices.Sorted(maps.Keys(r.manifests)), missing,
		"serve a bundle that contains them; this shows the content of a bundle: ocadm bundle list FILE")
}

func (r *Remote) title() string { return "The depot at " + r.client.address }

// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
)

// ID is the same for servers of the same content, and for no others.
func (r *Remote) ID() string {
	raw, err := json.Marshal(Root{Images: r.root.Images, Files: r.root.Files})
	if err != nil {
		panic(err) // plain values
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:6])
}

// Size is how many bytes the images and files of every architecture have.
func (r *Remote) Size(ctx context.Context) (size int64, err error) {
	blobs, err := r.blobs(ctx)
	for _, n := range blobs {
		size += n
	}
	return size, err
}

// blobs are all that the depot has for its names, with their sizes.
func (r *Remote) blobs(ctx context.Context) (map[v1.Hash]int64, error) {
	out := map[v1.Hash]int64{}
	for _, f := range r.root.Files {
		out[f.Digest] = f.Size
	}
	for _, d := range r.root.Images {
		if err := r.below(ctx, d, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// below adds a manifest and what it needs, and of an index what the depot has.
func (r *Remote) below(ctx context.Context, d v1.Descriptor, out map[v1.Hash]int64) error {
	if _, known := out[d.Digest]; known {
		return nil
	}
	var m manifests
	if err := r.client.document(ctx, d, &m); err != nil {
		return err
	}
	out[d.Digest] = d.Size
	for _, child := range m.Manifests {
		err := r.below(ctx, child, out)
		if l := finding.Of(err); err != nil && (len(l) != 1 || l[0].Code != CodeNoBlob) {
			return err
		}
	}
	if d.MediaType.IsIndex() {
		return nil
	}
	for _, b := range append(m.Layers, m.Config) {
		out[b.Digest] = b.Size
	}
	return nil
}

// Take stores all that another depot has, for every architecture, under a root. progress gets the number of bytes stored so far. What was
// interrupted goes on with the blobs that are missing.
func (s *Store) Take(ctx context.Context, root string, r *Remote, progress func(done, total int64)) error {
	return s.Storing(ctx, func() error { return s.take(ctx, root, r, progress) })
}

func (s *Store) take(ctx context.Context, root string, r *Remote, progress func(done, total int64)) error {
	blobs, err := r.blobs(ctx)
	if err != nil {
		return err
	}
	var done, total, absent int64
	for h, n := range blobs {
		if total += n; !s.has(h) {
			absent += n
		}
	}
	if err := s.room(absent); err != nil {
		return err
	}
	for h, n := range blobs {
		if err := s.copyBlob(ctx, r.client, h, n); err != nil {
			return err
		}
		done += n
		progress(done, total)
	}
	return s.SetRoot(ctx, Root{Name: root, Series: r.series(), Images: r.root.Images, Files: r.root.Files})
}

// series is that of a bundle for the platforms of the files.
func (r *Remote) series() string {
	var platforms []string
	for _, arch := range architectures(r.root) {
		platforms = append(platforms, "linux/"+arch)
	}
	return BundleSeries(platforms...)
}

// CheckPlatform returns a finding if the depot has nothing for an architecture (a GOARCH), or another version of Kubernetes. The images of
// the control plane show the version.
func (r *Remote) CheckPlatform(arch, kubernetes string) error {
	if len(r.contents.Files)+len(r.contents.Images) == 0 || arch != r.contents.Info.Arch {
		return finding.New(bundle.CodeWrongPlatform, fmt.Sprintf("%s has nothing for linux/%s", r.title(), arch), "",
			"serve a bundle that was made with --arch "+arch)
	}
	var have []string
	for _, i := range r.contents.Images {
		if name, tag, ok := strings.Cut(path.Base(i.Name), ":"); ok && name == "kube-apiserver" {
			have = append(have, tag)
		}
	}
	if kubernetes == "" || len(have) == 0 || slices.Contains(have, kubernetes) {
		return nil
	}
	return finding.New(bundle.CodeWrongVersion, fmt.Sprintf("%s is for Kubernetes %s, and %s is to be installed", r.title(), strings.Join(have, ", "), kubernetes), "",
		fmt.Sprintf("add --kubernetes-version %s; or serve a bundle that was made with --kubernetes-version %s", have[0], kubernetes))
}

// CheckImages returns a finding that names the images that the depot lacks.
func (r *Remote) CheckImages(images []string) error {
	var missing []string
	for _, i := range images {
		if _, ok := r.manifests[i]; !ok {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return finding.New(bundle.CodeMissingImages, r.title()+" lacks images that this run needs", strings.Join(missing, ", "),
		"serve a bundle that has them; this shows what is in one: ocadm bundle list FILE").With(missing...)
}

func (r *Remote) title() string { return "The depot at " + r.client.address }

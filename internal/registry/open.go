// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
)

// maxManifest bounds manifests, which are read into memory. It is what registries accept:
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pushing-manifests asks for 4 MiB at least.
const maxManifest = 8 << 20

// Accepted lists the media types of manifests that nodes can use.
const Accepted = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, " +
	"application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

// answerTimeout bounds the requests before the download from one endpoint: a server may accept a connection and never answer.
const answerTimeout = time.Minute

// Image is an image at an endpoint that has its manifest.
type Image struct {
	// Descriptor describes its manifest or index, and Raw is the document itself.
	v1.Descriptor
	Raw []byte

	place   place
	fetcher fetch.Fetcher
}

// Read asks every endpoint of an image's registry, as containerd does, until one has the image and read can read it there. A finding, which read returns
// about this machine, ends that. f sets the patience of downloads. Any other error is an *Error.
func (c Client) Read(ctx context.Context, image string, f fetch.Fetcher, read func(*Image) error) error {
	var own error
	err := c.first(image, func(s place) error {
		defer s.close()
		asking, cancel := context.WithTimeout(ctx, cmp.Or(f.Stall, answerTimeout))
		defer cancel()
		d, err := remote.Get(s.ref, s.options(asking)...)
		if err != nil {
			return s.way.because(err)
		}
		repository := s.ref.Context()
		session, err := transport.NewWithContext(asking, repository.Registry, s.auth, s.way, []string{repository.Scope(transport.PullScope)})
		if err != nil {
			return s.way.because(err)
		}
		f.Client, f.Header = &http.Client{Transport: session}, http.Header{"Accept": {Accepted}}
		if err = read(&Image{Descriptor: d.Descriptor, Raw: d.Manifest, place: s, fetcher: f}); len(finding.Of(err)) > 0 {
			own, err = err, nil
		}
		return err
	})
	return cmp.Or(own, err)
}

// Manifest downloads one of the manifests of an index. It does not verify the digest.
func (i *Image) Manifest(ctx context.Context, h v1.Hash) ([]byte, error) {
	raw, err := i.fetcher.Document(ctx, i.address("manifests", h), maxManifest)
	if err != nil {
		return nil, fmt.Errorf("downloading the manifest %s: %w", h, err)
	}
	return raw, nil
}

// Blob downloads a layer or a configuration, resuming after a broken connection. Wrong content is an error at the end.
func (i *Image) Blob(ctx context.Context, h v1.Hash, w io.Writer) error {
	if err := i.fetcher.Copy(ctx, i.address("blobs", h), w, h.Hex, func(int64) {}); err != nil {
		return fmt.Errorf("downloading %s: %w", h, err)
	}
	return nil
}

func (i *Image) address(kind string, h v1.Hash) string {
	r := i.place.ref.Context()
	return r.Scheme() + "://" + r.RegistryStr() + "/v2/" + r.RepositoryStr() + "/" + kind + "/" + h.String()
}

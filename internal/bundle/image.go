// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"yunion.io/x/ocadm/internal/lists"
)

// dockerName is the file that "docker load" reads instead of the index.
const dockerName = "manifest.json"

// WriteImage writes a single image, not part of a bundle, as a tar archive that is both an OCI image layout, like that of WriteImages, and a docker
// archive. The same image gives the same bytes.
func WriteImage(ctx context.Context, w io.Writer, img ImageSource) error {
	config, err := img.Image.ConfigFile()
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", img.Name, err)
	}
	s := staged{blobs: map[v1.Hash]source{}}
	d, err := s.image(Info{OS: config.OS, Arch: config.Architecture}, img)
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", img.Name, err)
	}
	index, err := layoutIndex([]v1.Descriptor{d})
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", img.Name, err)
	}
	docker, err := dockerManifest(img)
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", img.Name, err)
	}
	t := tar.NewWriter(w)
	err = errors.Join(writeBytes(t, layoutName, []byte(layoutJSON)), writeBytes(t, indexName, index), writeBytes(t, dockerName, docker))
	if err == nil {
		err = s.writeBlobs(ctx, t)
	}
	if err = errors.Join(err, t.Close()); err != nil {
		return fmt.Errorf("writing the image %s: %w", img.Name, err)
	}
	return nil
}

func dockerManifest(img ImageSource) ([]byte, error) {
	tag, err := name.NewTag(img.Name)
	if err != nil {
		return nil, err
	}
	m, err := img.Image.Manifest()
	if err != nil {
		return nil, err
	}
	d := tarball.Descriptor{Config: blobPrefix + m.Config.Digest.Hex, RepoTags: []string{img.Name}}
	if tag.RegistryStr() == name.DefaultRegistry { // docker omits the name of its default registry
		d.RepoTags = []string{tag.RepositoryStr() + ":" + tag.TagStr()}
	}
	d.Layers = lists.Map(m.Layers, func(l v1.Descriptor) string { return blobPrefix + l.Digest.Hex })
	return json.Marshal(tarball.Manifest{d})
}

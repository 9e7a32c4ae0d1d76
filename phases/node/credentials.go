// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/docker/cli/cli/config"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"yunion.io/x/ocadm/phases/host"
)

// kubeletCredentials has the format of ~/.docker/config.json. The kubelet reads it for its own pulls:
// https://kubernetes.io/docs/concepts/containers/images/#config-json
const kubeletCredentials = "/var/lib/kubelet/config.json"

// credentials returns what a pull of the image logs in with, nil without an entry. As for the kubelet, an entry for a path of the registry
// precedes one for the registry.
func credentials(files host.Files, image string) (*cri.AuthConfig, error) {
	raw, err := files.ReadFile(kubeletCredentials)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading registry credentials: %w", err)
	}
	file, err := config.LoadFromReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("reading registry credentials in %s: %w", kubeletCredentials, err)
	}
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("looking up registry credentials: %w", err)
	}
	keys := []string{}
	for key := ref.Context().Name(); key != "."; key = path.Dir(key) {
		keys = append(keys, key)
	}
	if ref.Context().RegistryStr() == name.DefaultRegistry {
		keys = append(keys, authn.DefaultAuthKey)
	}
	for _, key := range keys {
		if a, ok := file.AuthConfigs[key]; ok {
			return &cri.AuthConfig{
				Username: a.Username, Password: a.Password, Auth: a.Auth, ServerAddress: a.ServerAddress,
				IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
			}, nil
		}
	}
	return nil, nil
}

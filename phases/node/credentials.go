// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/phases/host"
)

// kubeletCredentials is the file from which the kubelet reads registry credentials:
// https://kubernetes.io/docs/concepts/containers/images/#using-a-private-registry, https://docs.docker.com/reference/cli/docker/login
const kubeletCredentials = "/var/lib/kubelet/config.json"

// CodeCredentials is the finding for registry credentials that cannot be used.
const CodeCredentials = "OCA-0325"

// Registries returns a client that contacts registries as containerd on this machine will, once the files of its mirrors are written.
func Registries(h *host.Host) (registry.Client, error) {
	credentials, err := credentialsOf(h)
	if err != nil {
		return registry.Client{}, err
	}
	files, err := earlyHosts(h)
	if err != nil {
		return registry.Client{}, err
	}
	return registry.Client{Endpoints: registry.Machine(planned{h.Files, files}), Credentials: credentials}, nil
}

// planned reads files of the machine, some of which are not written yet.
type planned struct {
	host.Files
	files host.FileSet
}

func (p planned) ReadFile(name string) ([]byte, error) {
	if i := slices.IndexFunc(p.files, func(f host.File) bool { return f.Name == name }); i >= 0 {
		return p.files[i].Data, nil
	}
	return p.Files.ReadFile(name)
}

// credentialsOf returns the credentials of the configuration, else the kubelet's.
func credentialsOf(h *host.Host) (registry.Credentials, error) {
	if auth := h.Config.Node.RegistryAuth; auth != "" {
		return registry.ParseCredentials([]byte(auth))
	}
	raw, err := h.Files.ReadFile(kubeletCredentials)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var c registry.Credentials
	if err == nil {
		c, err = registry.ParseCredentials(raw)
	}
	if err != nil {
		return nil, finding.Errorf(CodeCredentials, "The registry credentials of this machine cannot be used", "check "+kubeletCredentials, "%s: %w", kubeletCredentials, err)
	}
	return c, nil
}

// RegistryAuth returns the credentials of the configuration, else the kubelet's, as a docker config.json. It omits unusable ones, which preflight has
// reported.
func RegistryAuth(h *host.Host) []byte {
	if auth := h.Config.Node.RegistryAuth; auth != "" {
		return []byte(auth)
	}
	raw, err := h.Files.ReadFile(kubeletCredentials)
	if err == nil {
		_, err = registry.ParseCredentials(raw)
	}
	if err != nil {
		return []byte("{}")
	}
	return raw
}

// login returns the credentials for a pull of the image, nil without any. It names no server: containerd uses it for every server from which it pulls the
// image, as it does with credentials from the kubelet.
func login(c registry.Credentials, image string) (*cri.AuthConfig, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, fmt.Errorf("looking up registry credentials: %w", err)
	}
	a, ok := c.For(ref)
	if !ok {
		return nil, nil
	}
	return &cri.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}, nil
}

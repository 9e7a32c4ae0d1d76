// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path"

	"github.com/docker/cli/cli/config"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// Credentials holds the credentials of a docker config.json, by registry or by a path in one.
type Credentials map[string]authn.AuthConfig

// ParseCredentials parses a docker config.json. One that uses a credential helper is an error: only that program could read the secrets.
func ParseCredentials(raw []byte) (Credentials, error) {
	file, err := config.LoadFromReader(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("it is not a docker config.json") // the error may quote a secret
	}
	out := Credentials{}
	for key, a := range file.AuthConfigs {
		out[key] = authn.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken}
		if out[key] == (authn.AuthConfig{}) {
			return nil, fmt.Errorf("its entry %q contains no credentials; a credential helper (%q) may store them", key, file.CredentialsStore)
		}
	}
	if len(out) == 0 && (file.CredentialsStore != "" || len(file.CredentialHelpers) > 0) {
		return nil, fmt.Errorf("a credential helper (%q) stores its secrets", file.CredentialsStore)
	}
	return out, nil
}

// Basic returns the Authorization header for a server itself, "" if there are no credentials for it. containerd sends a mirror only those of the
// registry.
func (c Credentials) Basic(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	for _, key := range []string{u.Host, "https://" + u.Host, "http://" + u.Host} {
		if a := c[key]; a.Username != "" {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password))
		}
	}
	return ""
}

func (c Credentials) Resolve(r authn.Resource) (authn.Authenticator, error) {
	repo, err := name.NewRepository(r.String())
	if err != nil {
		return nil, err
	}
	if a, ok := c.For(repo.Tag(name.DefaultTag)); ok {
		return authn.FromConfig(a), nil
	}
	return authn.Anonymous, nil
}

// For returns the credentials for pulling an image. As with the kubelet, an entry for a path takes precedence over one for its registry.
func (c Credentials) For(ref name.Reference) (authn.AuthConfig, bool) {
	var keys []string
	for key := ref.Context().Name(); key != "."; key = path.Dir(key) {
		keys = append(keys, key)
	}
	if ref.Context().RegistryStr() == name.DefaultRegistry {
		keys = append(keys, authn.DefaultAuthKey, DockerHub)
	}
	for _, key := range keys {
		for _, spelled := range []string{key, "https://" + key} {
			if a, ok := c[spelled]; ok {
				return a, true
			}
		}
	}
	return authn.AuthConfig{}, false
}

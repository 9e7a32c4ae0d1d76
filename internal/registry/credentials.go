// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

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
	if a, _ := c.at(u.Host); a.Username != "" {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password))
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
		if a, ok := c.at(key); ok {
			return a, true
		}
	}
	return authn.AuthConfig{}, false
}

// at returns the credentials stored for a registry or a path in one. A key may have a scheme, a leading path /v1/ or /v2/, and wildcards in its host name, each for
// one of its parts. Source: kubernetes pkg/credentialprovider/keyring.go.
func (c Credentials) at(address string) (authn.AuthConfig, bool) {
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(c))) { // wildcards come last
		registry, below, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://"), "/")
		pattern := path.Join(registry, strings.TrimPrefix(strings.TrimPrefix(below, "v1/"), "v2/"))
		matched, _ := path.Match(pattern, address) // a malformed pattern, such as an IPv6 address, matches only itself
		if parts := func(s string) int { return strings.Count(s, ".") + strings.Count(s, ":") }; pattern == address || matched && parts(pattern) == parts(address) {
			return c[key], true
		}
	}
	return authn.AuthConfig{}, false
}

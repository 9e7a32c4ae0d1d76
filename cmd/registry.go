// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
)

// registryConfig reads the registry credentials, and hides them in all output.
func (a *app) registryConfig(cfg *config.Config) error {
	file := cfg.Node.RegistryConfig
	if file == "" {
		return nil
	}
	raw, err := os.ReadFile(file)
	var credentials registry.Credentials
	if err == nil {
		credentials, err = registry.ParseCredentials(raw)
	}
	for key, c := range credentials {
		if c.Password == "" && c.IdentityToken+c.RegistryToken != "" { // kubelet: DockerConfigEntry of pkg/credentialprovider/config.go
			err = fmt.Errorf("its entry %q has a token, which the kubelet cannot use, and no password", key)
		}
	}
	var all struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &all) // the rest of the file is not for other machines
	}
	if err == nil {
		raw, err = json.Marshal(all)
	}
	if err != nil {
		return finding.Errorf(node.CodeCredentials, "The registry credentials cannot be used", "check --registry-config", "%s: %w", file, err)
	}
	for key, c := range credentials {
		var entry struct{ Auth string }
		_ = json.Unmarshal(all.Auths[key], &entry) // it was read before
		a.redact.Add(c.Password, c.IdentityToken, c.RegistryToken, entry.Auth)
	}
	cfg.Node.RegistryAuth = string(raw)
	return nil
}

// proxies uses those in the environment if none are set, and hides their passwords in all output.
func (a *app) proxies(cfg *config.Config) {
	n := &cfg.Node
	for key, to := range map[string]*string{"http": &n.HTTPProxy, "https": &n.HTTPSProxy} {
		if !cfg.Gives("node." + key + "Proxy") {
			*to = cmp.Or(*to, environment(strings.ToUpper(key)+"_PROXY"))
		}
		if *to != "" && !strings.Contains(*to, "://") {
			*to = "http://" + *to
		}
		if u, err := url.Parse(*to); err == nil {
			if password, ok := u.User.Password(); ok {
				a.redact.Add(password, u.User.String())
			}
		}
	}
	if len(n.NoProxy) == 0 {
		n.NoProxy = strings.FieldsFunc(environment("NO_PROXY"), func(r rune) bool { return r == ',' || r == ' ' })
	}
}

// keepProxies adds what an earlier init or join set for containerd. A repeated one may leave out its flags and variables.
func (a *app) keepProxies(cfg *config.Config, h *host.Host) {
	was, _ := parseProxies([]byte(h.Files.Text(node.ProxyFile))) // any text is valid
	n := &cfg.Node
	if was.NoProxy != "" && !cfg.Gives("node.noProxy") {
		n.NoProxy = append(strings.Split(was.NoProxy, ","), n.NoProxy...)
	}
	if !cfg.Gives("node.httpProxy") {
		n.HTTPProxy = cmp.Or(n.HTTPProxy, was.HTTPProxy)
	}
	if !cfg.Gives("node.httpsProxy") {
		n.HTTPSProxy = cmp.Or(n.HTTPSProxy, was.HTTPSProxy)
	}
	a.proxies(cfg)
}

func environment(name string) string {
	return cmp.Or(os.Getenv(name), os.Getenv(strings.ToLower(name)))
}

// useProxies makes all requests of this process use the configured proxies.
func useProxies(cfg *config.Config) error {
	n := cfg.Node
	if n.HTTPProxy == "" && n.HTTPSProxy == "" {
		return nil
	}
	for name, value := range map[string]string{"HTTP_PROXY": n.HTTPProxy, "HTTPS_PROXY": n.HTTPSProxy, "NO_PROXY": strings.Join(n.NoProxy, ",")} {
		if err := os.Unsetenv(strings.ToLower(name)); err != nil {
			return err
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpproxy"

	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
)

// upstreamFlags configure how "depot serve" gets missing images from registries. They name files, because the contents are secret and may change.
type upstreamFlags struct {
	copy                   bool
	credentials, proxyFile string
	except                 []string
}

func (u *upstreamFlags) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&u.copy, "copy", false, "copy missing images from their registries when nodes request them")
	fs.StringVar(&u.credentials, "registry-config", "", "docker config.json with the credentials of registries (with --copy)")
	fs.StringVar(&u.proxyFile, "proxy-file", node.ProxyFile, "file with HTTP_PROXY, HTTPS_PROXY and NO_PROXY for registries (with --copy)")
	fs.StringSliceVar(&u.except, "except", nil, "servers in containerd's hosts.toml files to skip, HOST:PORT: the depots (with --copy)")
}

// registries returns a client configured like containerd on this node. It reads the files each time.
func (u *upstreamFlags) registries() (registry.Client, error) {
	credentials, err := optional(u.credentials, registry.ParseCredentials)
	if err != nil {
		return registry.Client{}, err
	}
	proxies, err := optional(u.proxyFile, parseProxies)
	if err != nil {
		return registry.Client{}, err
	}
	machine := registry.Machine(host.Files{})
	return registry.Client{
		Credentials: credentials,
		Proxy:       func(r *http.Request) (*url.URL, error) { return proxies.ProxyFunc()(r.URL) },
		Endpoints: func(name string) ([]registry.Endpoint, error) {
			list, err := machine(name)
			return slices.DeleteFunc(list, func(e registry.Endpoint) bool { return slices.Contains(u.except, e.Root.Host) }), err
		},
	}, nil
}

// optional parses a file that may be missing.
func optional[T any](file string, parse func([]byte) (T, error)) (out T, _ error) {
	if file == "" {
		return out, nil
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		out, err = parse(raw)
	}
	if err != nil {
		return out, fmt.Errorf("reading %s: %w", file, err)
	}
	return out, nil
}

// parseProxies reads the EnvironmentFile of containerd's unit: lines of NAME=VALUE, the value optionally in double quotes (systemd.exec(5)).
func parseProxies(raw []byte) (httpproxy.Config, error) {
	var c httpproxy.Config
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.NewReplacer(`\\`, `\`, `\"`, `"`, "\\$", "$", "\\`", "`").Replace(strings.Trim(value, `"`))
		switch name {
		case "HTTP_PROXY":
			c.HTTPProxy = value
		case "HTTPS_PROXY":
			c.HTTPSProxy = value
		case "NO_PROXY":
			c.NoProxy = value
		}
	}
	return c, nil
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"yunion.io/x/ocadm/phases/host"
)

const (
	proxyDropIn = host.UnitDir + "/" + containerdUnit + ".d/http-proxy.conf"
	// proxyFile holds the variables: a proxy's address may hold a password, and what is in a unit can be read by every user.
	proxyFile = "/etc/containerd/proxy.env"
)

// proxyFiles make containerd pull images through the proxy of this program's environment: none without a proxy.
func proxyFiles(h *host.Host) host.FileSet {
	env := func(name string) string { return cmp.Or(os.Getenv(name), os.Getenv(strings.ToLower(name))) }
	var lines strings.Builder
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		if v := env(name); v != "" && !strings.ContainsAny(v, "\n\r") {
			fmt.Fprintf(&lines, "%s=%s\n", name, environmentValue(v))
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	fmt.Fprintf(&lines, "NO_PROXY=%s\n", environmentValue(noProxy(h, env("NO_PROXY"))))
	dropIn := "# Written by ocadm from the environment of init or join.\n[Service]\nEnvironmentFile=-" + proxyFile + "\n"
	return host.FileSet{{Name: proxyFile, Data: []byte(lines.String()), Mode: 0o600}, {Name: proxyDropIn, Data: []byte(dropIn), Mode: unitMode}}
}

// noProxy is the list with what belongs to the cluster added to it.
func noProxy(h *host.Host, list string) string {
	var out []string
	c := h.Config
	own := append([]string{"localhost", "127.0.0.1", c.Node.IP, ".svc", "." + cmp.Or(c.Cluster.ServiceDNSDomain, "cluster.local")},
		strings.Split(c.Cluster.PodNetworkCIDR+","+c.Cluster.ServiceCIDR, ",")...)
	for _, e := range append(strings.Split(list, ","), own...) {
		if e = strings.TrimSpace(e); e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return strings.Join(out, ",")
}

// environmentValue quotes a value for an environment file of systemd.
func environmentValue(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(v) + `"`
}

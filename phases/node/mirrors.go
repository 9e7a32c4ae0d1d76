// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// MirrorsPhase is the name of Mirrors.
const MirrorsPhase = "node-mirrors"

// everyRegistry is the directory that containerd reads for registries without their own.
const everyRegistry = "_default"

// The files with which a node authenticates to the depot. A pull fails if a file named in hosts.toml does not exist.
const (
	clusterCA = "/etc/kubernetes/pki/ca.crt"
	// Certificate holds the certificate and its key; the kubelet renews it.
	Certificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"
)

// Mirror is a server from which containerd tries to pull images before their registry.
type Mirror struct {
	// URL is that of a registry, "https://10.0.0.1:6444". Its path is prepended to image names.
	URL string
	// CA and Client are optional files: the server's CA, and a client certificate with its key.
	CA, Client string
	// Authorization is an optional request header, a secret.
	Authorization string
}

// mirrors returns the mirrors of each registry, in the order in which they are tried: the depots, if this machine has a client certificate for them, then
// those of --registry-mirror.
func mirrors(h *host.Host, depots bool) (map[string][]Mirror, error) {
	var first []Mirror
	if depots {
		first = depotMirrors(h.Config)
	}
	all := map[string][]Mirror{everyRegistry: first}
	if len(h.Config.Node.RegistryMirrors) == 0 {
		return all, nil
	}
	credentials, err := credentialsOf(h)
	if err != nil {
		return nil, err
	}
	for _, s := range h.Config.Node.RegistryMirrors {
		of, address, err := config.RegistryMirror(s)
		if err != nil {
			return nil, err
		}
		if of == "*" {
			of = everyRegistry
		}
		if all[of] == nil {
			all[of] = slices.Clone(first)
		}
		all[of] = append(all[of], Mirror{URL: address, Authorization: credentials.Basic(address)})
	}
	return all, nil
}

func depotMirrors(c *config.Config) []Mirror {
	return lists.Map(DepotAddresses(c), func(address string) Mirror {
		return Mirror{URL: "https://" + address, CA: clusterCA, Client: Certificate}
	})
}

// inRegistry returns the address in containerd's form, in which a path must be that of the registry's API.
func (m Mirror) inRegistry() (address string, overridden bool) {
	u, err := url.Parse(m.URL)
	if err != nil {
		return m.URL, false
	}
	prefix := strings.TrimPrefix(u.Path, "/v2")
	if u.Path = ""; prefix != "" {
		u.Path = path.Join("/v2", prefix)
	}
	return u.String(), prefix != ""
}

// DepotAddresses returns the cluster's depots, HOST:PORT: the one that --depot names, else the one at the control plane's endpoint. A control-plane node
// also has its own, even behind a load balancer.
func DepotAddresses(c *config.Config) []string {
	switch {
	case c.Node.Depot == config.None:
		return nil
	case c.Node.Depot != "":
		return []string{c.Node.Depot}
	}
	own := cmp.Or(c.Node.AdvertiseAddress, c.Node.IP)
	if c.Join.Endpoint+c.Join.DiscoveryFile == "" && own != "" {
		return []string{net.JoinHostPort(own, strconv.Itoa(config.DepotPort))}
	}
	endpoint, _, err := config.SplitEndpoint(cmp.Or(c.Join.Endpoint, c.Cluster.ControlPlaneEndpoint), config.DefaultPort)
	if err != nil || endpoint == "" {
		return nil
	}
	list := []string{net.JoinHostPort(endpoint, strconv.Itoa(config.DepotPort))}
	if c.Join.ControlPlane && own != "" { // its own depot helps if the endpoint does not answer
		list = append(list, net.JoinHostPort(own, strconv.Itoa(config.DepotPort)))
	}
	return list
}

// hostsFile returns containerd's configuration of a registry. Without offline, the registry itself comes last, with the lines of own. Source: containerd
// core/remotes/docker/config/hosts.go.
func hostsFile(list []Mirror, offline bool, own string) []byte {
	var b strings.Builder
	b.WriteString("# Written by ocadm. Put your own settings for a registry into " + registriesDir + "/REGISTRY/hosts.toml.\n")
	more := func(m Mirror, table string) {
		if _, overridden := m.inRegistry(); overridden {
			b.WriteString("  override_path = true\n")
		}
		if m.CA != "" {
			fmt.Fprintf(&b, "  ca = %q\n", m.CA)
		}
		if m.Client != "" {
			fmt.Fprintf(&b, "  client = %q\n", m.Client)
		}
		b.WriteString("  dial_timeout = \"5s\"\n")
		if m.Authorization != "" {
			fmt.Fprintf(&b, "\n[%sheader]\n  Authorization = %q\n", table, m.Authorization)
		}
	}
	if !offline {
		b.WriteString(own)
	} else { // containerd uses "server" instead of the registry
		last := list[len(list)-1]
		address, _ := last.inRegistry()
		fmt.Fprintf(&b, "server = %q\n  capabilities = [\"pull\", \"resolve\"]\n", address)
		more(last, "")
		list = list[:len(list)-1]
	}
	for _, m := range list {
		address, _ := m.inRegistry()
		fmt.Fprintf(&b, "\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", address)
		more(m, fmt.Sprintf("host.%q.", address))
	}
	return []byte(b.String())
}

// hostsFiles returns the files to write. It skips registries that others configured.
func hostsFiles(h *host.Host, depots bool) (files host.FileSet, _ error) {
	all, err := mirrors(h, depots)
	if err == nil && h.Config.Node.Offline && len(all[everyRegistry]) == 0 {
		// While the certificate that the file names is missing, each pull fails at once. Without the file, it would go to the registry.
		all[everyRegistry] = depotMirrors(h.Config)
	}
	if err != nil {
		return nil, err
	}
	earlier := map[string]bool{} // with other mirrors, which would stay in use
	for _, e := range h.Ledger.Created(host.KindFile) {
		if of := path.Base(path.Dir(e.Name)); e.Name == hostsName(of) && len(h.Config.Node.RegistryMirrors) > 0 {
			earlier[of] = !h.Config.Node.Offline
			if all[of] == nil {
				all[of] = all[everyRegistry]
			}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(all)) {
		if list := all[of]; (len(list) > 0 || earlier[of]) && !othersHosts(h, of) && !hasMirrors(h, of, list) {
			files = append(files, host.File{Name: hostsName(of), Data: hostsFile(list, h.Config.Node.Offline, registry.Certificates(h.Files, of)), Mode: hostsMode(list)})
		}
	}
	return files, nil
}

// hasMirrors reports whether the file of an earlier run has these mirrors. It may have more: those of its --registry-mirror, which a repeated run may omit.
func hasMirrors(h *host.Host, of string, list []Mirror) bool {
	text := h.Files.Text(hostsName(of))
	return len(list) > 0 && len(h.Config.Node.RegistryMirrors) == 0 && !h.Config.Gives("node.registryMirrors") && kubernetes.Offline(h) == h.Config.Node.Offline &&
		!slices.ContainsFunc(list, func(m Mirror) bool { return !strings.Contains(text, strconv.Quote(m.URL)) })
}

func hostsName(registry string) string { return path.Join(registriesDir, registry, "hosts.toml") }

// othersHosts reports whether something other than ocadm has configured a registry.
func othersHosts(h *host.Host, registry string) bool {
	return h.Files.Exists(hostsName(registry)) && !h.Ledger.Has(host.KindFile, hostsName(registry))
}

// Forbidden returns the images, by full name, that cannot be pulled because of --offline: their registry has no mirror, and this machine cannot use a depot
// yet.
func Forbidden(h *host.Host, images []string) ([]string, error) {
	if !h.Config.Node.Offline {
		return nil, nil
	}
	all, err := mirrors(h, h.Files.Exists(Certificate))
	return slices.DeleteFunc(slices.Clone(images), func(image string) bool {
		registry, _, _ := strings.Cut(image, "/")
		return slices.ContainsFunc([]string{registry, everyRegistry}, func(r string) bool { return len(all[r]) > 0 || othersHosts(h, r) })
	}), err
}

// earlyHosts returns the hosts files for pulls before the node has its certificate: the mirrors of the configuration. Later they equal those of Mirrors.
// With --offline they also keep containerd from using registries.
func earlyHosts(h *host.Host) (host.FileSet, error) {
	if len(h.Config.Node.RegistryMirrors) == 0 && !h.Config.Node.Offline {
		return nil, nil
	}
	return hostsFiles(h, h.Files.Exists(Certificate))
}

// hostsMode returns a mode that protects secrets.
func hostsMode(list []Mirror) fs.FileMode {
	if slices.ContainsFunc(list, func(m Mirror) bool { return m.Authorization != "" }) {
		return 0o600
	}
	return unitMode
}

// Mirrors makes containerd try the depot first for every image. It comes after the phases that give the node its certificate. containerd reads the files on
// each pull.
func Mirrors(after ...string) host.Phase {
	return host.Writes(host.Phase{
		Name: MirrorsPhase, Short: "Let containerd pull from the depot first",
		Long: "Writes " + registriesDir + "/_default/hosts.toml: containerd pulls an image from the depot of the control plane, then from the mirrors of\n" +
			"--registry-mirror and then from its registry; with --offline, only from the depot. A registry with its own directory there keeps its settings.",
		After: after, Skip: otherRuntime, AnyRelease: true,
		Undo: undoMirrors,
	}, func(h *host.Host) (host.FileSet, error) { return hostsFiles(h, true) })
}

// undoMirrors must run before the node's certificate is removed: a containerd that stays could not pull otherwise.
func undoMirrors(_ context.Context, h *host.Host, r workflow.Reporter) error {
	var errs []error
	for _, e := range h.Ledger.Created(host.KindFile) {
		if path.Base(e.Name) == "hosts.toml" && path.Dir(path.Dir(e.Name)) == registriesDir {
			_, err := h.Undo(r, e.Name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

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

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// MirrorsPhase is the name of Mirrors.
const MirrorsPhase = "node-mirrors"

// everyRegistry is the directory that containerd reads for registries without one of their own.
const everyRegistry = "_default"

// The files that let a node into the depot. A pull fails if a file that hosts.toml names is not there.
const (
	clusterCA = "/etc/kubernetes/pki/ca.crt"
	// Certificate holds certificate and key; the kubelet renews it.
	Certificate = "/var/lib/kubelet/pki/kubelet-client-current.pem"
)

// Mirror is a server that containerd asks for images before it asks their registry.
type Mirror struct {
	// URL is that of a registry, "https://10.0.0.1:6444". A path is put before the names of images.
	URL string
	// CA and Client are files, both optional: the authority of the server, and a certificate with its key to show.
	CA, Client string
	// Authorization is a header of requests, a secret; it is optional.
	Authorization string
}

// mirrors are those of each registry, in the order in which they are asked: the depots, if this machine can show them a certificate, then
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

func depotMirrors(c *config.Config) (list []Mirror) {
	for _, address := range DepotAddresses(c) {
		list = append(list, Mirror{URL: "https://" + address, CA: clusterCA, Client: Certificate})
	}
	return list
}

// inRegistry is the address in containerd's form: a path must be that of the registry's API.
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

// DepotAddresses are the depots of the cluster, HOST:PORT: the one that --depot names, else the one where the control plane answers.
// A control-plane node has its own, also behind a load balancer.
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
	if c.Join.ControlPlane && own != "" { // once it has its own, that helps when the endpoint does not answer
		list = append(list, net.JoinHostPort(own, strconv.Itoa(config.DepotPort)))
	}
	return list
}

// hostsFile is containerd's configuration of a registry. Without offline, the registry itself comes last.
// Source: containerd core/remotes/docker/config/hosts.go.
func hostsFile(list []Mirror, offline bool) []byte {
	var b strings.Builder
	b.WriteString("# Written by ocadm. Put settings of your own for a registry into " + registriesDir + "/REGISTRY/hosts.toml.\n")
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
	if offline { // what is named server is asked in place of the registry
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

// hostsFiles are those to be written. A registry that others configured keeps its settings.
func hostsFiles(h *host.Host, depots bool) (files host.FileSet, _ error) {
	all, err := mirrors(h, depots)
	if err == nil && h.Config.Node.Offline && len(all[everyRegistry]) == 0 {
		// Without the certificate that the file names each pull fails at once. Without the file it would go to the registry.
		all[everyRegistry] = depotMirrors(h.Config)
	}
	if err != nil {
		return nil, err
	}
	for _, registry := range slices.Sorted(maps.Keys(all)) {
		name := hostsName(registry)
		if len(all[registry]) > 0 && !othersHosts(h, registry) {
			files = append(files, host.File{Name: name, Data: hostsFile(all[registry], h.Config.Node.Offline), Mode: hostsMode(all[registry])})
		}
	}
	return files, nil
}

func hostsName(registry string) string { return path.Join(registriesDir, registry, "hosts.toml") }

// othersHosts reports whether another program or a person has configured a registry.
func othersHosts(h *host.Host, registry string) bool {
	return h.Files.Exists(hostsName(registry)) && !h.Ledger.Has(host.KindFile, hostsName(registry))
}

// Forbidden are the images that cannot be pulled because of --offline: there is no mirror of their registry, and this machine cannot ask a
// depot yet. Images are full names.
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

// earlyHosts are for the pulls that precede the node's certificate, and later the same as those of Mirrors: the mirrors of the
// configuration. With --offline they also keep containerd from the registries.
func earlyHosts(h *host.Host) (host.FileSet, error) {
	if len(h.Config.Node.RegistryMirrors) == 0 && !h.Config.Node.Offline {
		return nil, nil
	}
	return hostsFiles(h, h.Files.Exists(Certificate))
}

// hostsMode hides secrets.
func hostsMode(list []Mirror) fs.FileMode {
	if slices.ContainsFunc(list, func(m Mirror) bool { return m.Authorization != "" }) {
		return 0o600
	}
	return unitMode
}

// Mirrors makes containerd ask the depot for every image first. It comes after the phases that give the node its certificate. containerd
// reads the files at each pull.
func Mirrors(after ...string) host.Phase {
	return host.Writes(host.Phase{
		Name: MirrorsPhase, Short: "Let containerd pull from the depot first",
		Long: "Writes " + registriesDir + "/_default/hosts.toml: containerd asks the depot of the control plane for an image, then the mirrors of\n" +
			"--registry-mirror and then its registry, with --offline the depot alone. A registry that has a directory of its own there keeps its settings.",
		After: after, Skip: otherRuntime, AnyRelease: true,
		Undo: func(_ context.Context, h *host.Host, r workflow.Reporter) error { return undoMirrors(h, r) },
	}, func(h *host.Host) (host.FileSet, error) { return hostsFiles(h, true) })
}

// undoMirrors must precede the removal of the node's certificate: a containerd that stays could pull nothing.
func undoMirrors(h *host.Host, r workflow.Reporter) error {
	var errs []error
	for _, e := range h.Ledger.Created(host.KindFile) {
		if path.Base(e.Name) == "hosts.toml" && path.Dir(path.Dir(e.Name)) == registriesDir {
			_, err := h.TakeBack(r, e.Name)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/version"
)

// node validates the settings of this machine.
func (v *validation) node() {
	n := v.c.Node
	if n.Name == "" {
		v.add("node.name", "the machine has no host name, and none was given")
	} else {
		v.check("node.name", NodeName(n.Name))
	}
	if !strings.HasPrefix(n.CRISocket, "unix:///") {
		v.add("node.criSocket", fmt.Sprintf("%q is not unix:///PATH", n.CRISocket))
	}
	if v.command&(ForInit|ForJoin) == 0 {
		return
	}
	v.check("node.ip", address(n.IP))
	if n.AdvertiseAddress != n.IP {
		v.check("node.advertiseAddress", address(n.AdvertiseAddress))
	}
	v.port("node.bindPort", n.BindPort)
	if v.command&ForInit != 0 && n.BindPort == DepotPort && n.Depot != None {
		v.add("node.bindPort", fmt.Sprintf("%d is the port of the depot; choose another, or give --depot none", DepotPort))
	}
	v.check("node.mirror", mirror(n.Mirror))
	v.bundle()
	v.check("node.depot", depot(n, v.command))
	for _, m := range n.RegistryMirrors {
		_, _, err := RegistryMirror(m)
		v.check("node.registryMirrors", err)
	}
	v.check("node.httpProxy", proxy(n.HTTPProxy))
	v.check("node.httpsProxy", proxy(n.HTTPSProxy))
	v.hostAgent()
	_, errs := Labels(n.Labels)
	for _, err := range errs {
		v.check("node.labels", err)
	}
	if n.ConntrackMaxPerCore != nil && *n.ConntrackMaxPerCore < 0 {
		v.add("node.conntrackMaxPerCore", "it is negative")
	}
	v.check("cluster.kubernetesVersion", KubernetesVersion(v.c.Cluster.KubernetesVersion))
	v.repository("cluster.imageRepository", v.c.Cluster.ImageRepository)
	if r := v.c.Cluster.KubernetesImageRepository; r != v.c.Cluster.ImageRepository {
		v.repository("cluster.kubernetesImageRepository", r)
	}
}

// KubernetesVersion checks that the linked kubeadm installs a version of Kubernetes: its own minor version or the one before.
func KubernetesVersion(v string) error {
	own, before := semver.MajorMinor(version.Kubernetes), ""
	if major, minor, ok := strings.Cut(own, "."); ok {
		n, _ := strconv.Atoi(minor) // version.Kubernetes is a constant
		before = fmt.Sprintf("%s.%d", major, n-1)
	}
	if m := semver.MajorMinor(v); semver.Canonical(v) == v && (m == own || m == before) {
		return nil
	}
	return fmt.Errorf("%q: this ocadm installs %s and %s; another version needs another ocadm", v, own, before)
}

func depot(n Node, command For) error {
	switch host, _, err := SplitEndpoint(n.Depot, DepotPort); {
	case n.Depot == None && n.Offline:
		return errors.New("with --offline, images come only from the depot; \"none\" is not allowed")
	case n.Depot == "" || n.Depot == None:
		return nil
	case err != nil:
		return err
	case host == "" || command&ForInit != 0:
		return errors.New("init starts a depot on this machine; the only accepted value is \"none\"")
	}
	return nil
}

func mirror(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return errors.New("it is not https://HOST[:PORT][/PATH] or the same with http") // the value may hold a password
	case u.User != nil:
		return errors.New("it contains a password, which logs would show; let the mirror serve this machine without a password")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("it has a query or a fragment; paths are appended to it")
	}
	return nil
}

// RegistryMirror splits REGISTRY=URL. The registry has its containerd name; * means every registry without its own mirrors.
func RegistryMirror(s string) (registry, address string, err error) {
	registry, address, ok := strings.Cut(s, "=")
	if !ok || registry != "*" && !repository.MatchString(registry) || strings.Contains(registry, "/") {
		return "", "", errors.New("it is not REGISTRY=URL, such as docker.io=https://mirror.example.org")
	}
	if err := mirror(address); err != nil || address == "" {
		return "", "", fmt.Errorf("the mirror of %s: %w", registry, cmp.Or(err, errors.New("it has no address")))
	}
	return registry, strings.TrimSuffix(address, "/"), nil
}

// proxy checks a proxy's URL. Its error never repeats the value, which may hold a password.
func proxy(s string) error {
	if u, err := url.Parse(s); s != "" && (err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme)) ||
		strings.ContainsAny(s, "\n\r") {
		return errors.New("it is not http://[USER:PASSWORD@]HOST:PORT or the same with https or socks5")
	}
	return nil
}

func address(s string) error {
	if s == "" {
		return errors.New("the machine has no default route to take an address from, and none was given")
	}
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not an IP address", s)
	case a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "":
		return fmt.Errorf("%s is not an address that other nodes can reach", s)
	}
	return nil
}

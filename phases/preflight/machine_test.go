// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// goodMachine returns a machine without problems.
func goodMachine(t *testing.T) *machine {
	t.Helper()
	c := &config.Config{
		Cluster: config.Cluster{KubernetesVersion: "v1.36.3", PodNetworkCIDR: "10.40.0.0/16", ServiceCIDR: "10.96.0.0/12", ServiceDNSDomain: "cluster.local"},
		Node:    config.Node{Name: "node-1", IP: "192.0.2.11", BindPort: 6443},
		Addons:  config.Addons{CNI: "flannel", Storage: "local-path", Ingress: "none"},
	}
	rec := &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		if c.Path == "systemctl" {
			return exec.Result{ExitCode: 3}, errors.New("inactive")
		}
		return exec.Result{}, nil
	}}
	h, err := host.Fake(t.Context(), t.TempDir(), c, rec)
	require.NoError(t, err)
	for _, p := range []string{"mount", "umount", "ip", "systemctl", "modprobe", "iptables", "nft", "ethtool"} {
		put(t, h, "/usr/sbin/"+p, "")
	}
	put(t, h, "/etc/resolv.conf", "nameserver 192.0.2.1\n")
	put(t, h, "/proc/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	put(t, h, "/proc/net/tcp", tcpHeader+"   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1\n")
	put(t, h, "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
	h.Facts = host.Facts{
		Arch: "amd64", CPUs: 4, Memory: 8 * gib, Cgroup: 2, Systemd: true, Kernel: "6.1.0",
		Interfaces: []host.Interface{{Name: "eth0", Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.11/24")}}},
	}
	for _, f := range features() {
		put(t, h, "/sys/module/"+f.module+"/refcnt", "")
	}
	put(t, h, "/etc/containerd/certs.d/_default/hosts.toml", "server = 'http://"+registryOf(t, hasAll)+"'\n")
	m := newMachine(h, Init, DefaultLimits())
	m.goos = "linux"
	m.disk = func(string) (uint64, uint64, error) { return 1, 100 * gib, nil }
	m.resolve = func(context.Context, string) ([]string, error) { return []string{"192.0.2.11"}, nil }
	m.local = func(_ context.Context, name string) ([]string, error) {
		if name == "localhost" {
			return []string{"127.0.0.1"}, nil
		}
		return nil, errors.New("no such host")
	}
	m.inodes = func(string) (uint64, uint64, error) { return 1 << 24, 1 << 23, nil }
	m.fsync = func(context.Context, string) (time.Duration, error) { return time.Millisecond, nil }
	m.reach = func(context.Context, string) error { return nil }
	return m
}

const tcpHeader = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func put(t *testing.T, h *host.Host, name, data string) {
	t.Helper()
	require.NoError(t, (host.Files{Root: h.Files.Root}).WriteFile(name, []byte(data), 0o755))
}

func unload(t *testing.T, m *machine, module string) {
	t.Helper()
	require.NoError(t, m.h.Files.RemoveAll("/sys/module/"+module))
}

// emptyBundle returns a bundle for a machine; its only content is one word.
func emptyBundle(t *testing.T, arch, version string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "b.bundle")
	word := bundle.FileSource{Path: "/bin/word", Mode: 0o755, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("word")), nil }}
	info := bundle.Info{OS: "linux", Arch: arch, KubernetesVersion: version}
	require.NoError(t, bundle.Create(t.Context(), file, info, []bundle.FileSource{word}, nil))
	return file
}

// selfSigned returns a PEM-encoded CA.
func selfSigned(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca, err := pki.NewCA(time.Now(), name, key)
	require.NoError(t, err)
	return string(ca.CertPEM())
}

// ipv6Route returns a line of /proc/net/ipv6_route.
func ipv6Route(to, bits, link string) string {
	any := strings.Repeat("0", 32)
	return to + " " + bits + " " + any + " 00 " + any + " 00000100 00000001 00000000 00000001 " + link + "\n"
}

// checksButJoin leaves out checks that need a real control plane.
func checksButJoin() []Check {
	return slices.Concat(hostChecks(), systemChecks(), mountChecks(), networkChecks(), linkChecks(), podNetworkChecks(), softwareChecks(), databaseChecks(), settingsChecks())
}

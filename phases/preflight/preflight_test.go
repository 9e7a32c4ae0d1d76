// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// provocation is a change of a good machine, and the findings about it.
type provocation struct {
	change func(*testing.T, *machine)
	want   []string // codes; "w" before one marks a warning
	says   string   // part of what, cause or remedy
}

func TestFindings(t *testing.T) {
	provoke(t, map[string]provocation{
		"good":               {func(*testing.T, *machine) {}, nil, ""},
		"not root":           {func(_ *testing.T, m *machine) { m.h.Facts.UID = 1000 }, []string{"OCA-1001"}, "sudo $(command -v ocadm)"},
		"no systemd":         {func(_ *testing.T, m *machine) { m.h.Facts.Systemd = false }, []string{"OCA-1002"}, "systemd"},
		"other architecture": {func(_ *testing.T, m *machine) { m.h.Facts.Arch = "riscv64" }, []string{"OCA-1003"}, "amd64 or arm64"},
		"another tool's kubeadm node": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/kubernetes/kubelet.conf", "x")
			put(t, m.h, "/etc/kubernetes/manifests/etcd.yaml", "x")
		}, []string{"OCA-1004"}, "kubeadm reset"},
		"k3s":                          {func(t *testing.T, m *machine) { put(t, m.h, "/etc/rancher/k3s/k3s.yaml", "x") }, []string{"OCA-1005"}, "k3s-uninstall.sh"},
		"an agent of k3s":              {func(t *testing.T, m *machine) { put(t, m.h, "/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "x") }, []string{"OCA-1005"}, "k3s-agent-uninstall.sh"},
		"RKE2":                         {func(t *testing.T, m *machine) { put(t, m.h, "/etc/rancher/rke2/config.yaml", "x") }, []string{"OCA-1005"}, "rke2-uninstall.sh"},
		"what k3s-uninstall.sh leaves": {func(t *testing.T, m *machine) { put(t, m.h, "/etc/rancher/node/password", "x") }, nil, ""},
		"another machine has its address": {func(_ *testing.T, m *machine) {
			m.holders = func(_ context.Context, _ string, a ...string) (map[string][]string, error) {
				return map[string][]string{a[0]: {"52:54:00:12:34:56"}}, nil
			}
		}, []string{"w OCA-2026"}, "52:54:00:12:34:56"},
		"one processor": {func(_ *testing.T, m *machine) { m.h.Facts.CPUs = 1 }, []string{"OCA-1008"}, "--ignore-preflight-errors=CPU"},
		"little memory": {func(_ *testing.T, m *machine) { m.h.Facts.Memory = gib }, []string{"OCA-1009"}, "1.0 GiB"},
		"swap":          {func(_ *testing.T, m *machine) { m.h.Facts.Swap = []string{"/dev/sdb2"} }, []string{"OCA-1010"}, "/dev/sdb2"},
		"cgroup v1":     {func(_ *testing.T, m *machine) { m.h.Facts.Cgroup = 1 }, []string{"OCA-1011"}, "--allow-cgroup-v1"},
		"cgroup v1 accepted": {func(t *testing.T, m *machine) {
			m.h.Facts.Cgroup, m.h.Config.Node.CgroupV1 = 1, true
			put(t, m.h, "/proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\ncpuacct\t1\t1\t1\ncpuset\t1\t1\t1\ndevices\t1\t1\t1\nfreezer\t1\t1\t1\npids\t1\t1\t1\nmemory\t0\t1\t0\n")
		}, []string{"OCA-1012"}, "not enabled: memory"},
		"cgroup controllers": {func(t *testing.T, m *machine) { put(t, m.h, "/sys/fs/cgroup/cgroup.controllers", "cpu io pids") }, []string{"OCA-1012"}, "cpuset, memory"},
		"kernel feature": {func(t *testing.T, m *machine) {
			unload(t, m, "vxlan")
			put(t, m.h, "/lib/modules/6.1.0/modules.dep", "")
		}, []string{"OCA-1013"}, "modprobe vxlan"},
		"kernel feature of which nothing is known": {func(t *testing.T, m *machine) { unload(t, m, "nf_tables") }, nil, ""},
		"kernel feature not built": {func(t *testing.T, m *machine) {
			unload(t, m, "nf_tables")
			put(t, m.h, "/boot/config-6.1.0", "# CONFIG_NF_TABLES is not set\n")
		}, []string{"OCA-1013"}, "nf_tables"},
		"kernel too old for the nftables that was chosen": {func(_ *testing.T, m *machine) {
			m.h.Facts.Kernel, m.h.Config.Cluster.ProxyMode = "5.10.0-136.12.0.86.oe2203sp1.x86_64", "nftables"
		}, []string{"OCA-1025"}, "give --proxy-mode iptables"},
		"kernel too old, iptables": {func(_ *testing.T, m *machine) {
			m.h.Facts.Kernel, m.h.Config.Cluster.ProxyMode = "4.18.0-553.el8_10.x86_64", "iptables"
		}, []string{"w OCA-1025"}, "kube-proxy uses iptables"},
		"kernel too old for anything": {func(_ *testing.T, m *machine) {
			m.kind, m.h.Facts.Kernel, m.h.Config.Cluster.ProxyMode = Join, "3.10.0-1160.el7.x86_64", "iptables"
		}, []string{"OCA-1028"}, "4.18 or later"},
		"kernel just new enough": {func(_ *testing.T, m *machine) {
			m.h.Facts.Kernel, m.h.Config.Cluster.ProxyMode = "5.13.0-51-generic", "nftables"
		}, nil, ""},
		"a worker's own mode does not matter": {func(_ *testing.T, m *machine) {
			m.kind, m.h.Facts.Kernel, m.h.Config.Cluster.ProxyMode = Join, "5.10.0-30-amd64", "nftables"
		}, nil, ""},
		"program missing": {func(t *testing.T, m *machine) {
			require.NoError(t, (host.Files{Root: m.h.Files.Root}).Remove("/usr/sbin/ip"))
		}, []string{"OCA-1014"}, "calls ip"},
		"what reset looks with is missing": {func(t *testing.T, m *machine) {
			for _, p := range []string{"nft", "iptables"} {
				require.NoError(t, (host.Files{Root: m.h.Files.Root}).Remove("/usr/sbin/"+p))
			}
		}, []string{"OCA-1014"}, "calls nft, iptables"},
		"program missing on Rocky": {func(t *testing.T, m *machine) {
			m.h.Facts.OS = host.OS{ID: "rocky", Like: []string{"rhel"}, Managers: []string{"dnf"}}
			require.NoError(t, (host.Files{Root: m.h.Files.Root}).Remove("/usr/sbin/ip"))
		}, []string{"OCA-1014"}, "dnf install -y iproute\n"},
		"small disk": {func(_ *testing.T, m *machine) {
			m.disk = func(p string) (uint64, uint64, error) {
				if p == "/var/lib/etcd" {
					return 2, 100 * mib, nil
				}
				return 1, 100 * gib, nil
			}
		}, []string{"OCA-1016"}, "100 MiB are free there, and 2.0 GiB are needed"},
		"disk shared by all": {func(_ *testing.T, m *machine) {
			m.disk = func(string) (uint64, uint64, error) { return 1, 9 * gib, nil }
		}, []string{"OCA-1016"}, "14.0 GiB are needed"},
		"disk with the images of an interrupted run": {func(t *testing.T, m *machine) {
			require.NoError(t, m.h.Ledger.Record(host.Entry{Kind: host.KindImage, Name: "registry.k8s.io/pause:3.10", Op: host.Created}))
			m.disk = func(string) (uint64, uint64, error) { return 1, 9 * gib, nil }
		}, nil, ""},
		"disk without a depot": {func(_ *testing.T, m *machine) {
			m.h.Config.Node.Depot = config.None
			m.disk = func(string) (uint64, uint64, error) { return 1, 9 * gib, nil }
		}, []string{"OCA-1016"}, "12.0 GiB are needed"},
		"clock":                  {func(_ *testing.T, m *machine) { answer(m, "timedatectl", "no\n") }, []string{"w OCA-1018"}, "timedatectl set-ntp true; if there is no NTP service, first: install"},
		"underscore in the name": {func(_ *testing.T, m *machine) { m.h.Config.Node.Name = "Cloud_POC" }, []string{"OCA-1019"}, "hostnamectl set-hostname cloud-poc"},
		"name on the loopback": {func(_ *testing.T, m *machine) {
			m.resolve = func(context.Context, string) ([]string, error) { return []string{"127.0.1.1"}, nil }
		}, []string{"w OCA-1020"}, "/etc/hosts: 192.0.2.11 node-1"},
		"loopback name server":     {func(t *testing.T, m *machine) { put(t, m.h, "/etc/resolv.conf", "nameserver 127.0.0.53\n") }, []string{"OCA-1021"}, "127.0.0.53"},
		"unknown feature gate":     {func(_ *testing.T, m *machine) { m.h.Config.Cluster.FeatureGates = "Nonsense=true" }, []string{"OCA-0320"}, "NodeLocalCRISocket=true|false"},
		"no name server":           {func(t *testing.T, m *machine) { put(t, m.h, "/etc/resolv.conf", "search .\n") }, []string{"OCA-1022"}, "nameserver ADDRESS; in a network without"},
		"no name server, a worker": {func(t *testing.T, m *machine) { joins(m); put(t, m.h, "/etc/resolv.conf", "") }, []string{"w OCA-1022"}, ""},
		"no resolv.conf, a worker": {func(t *testing.T, m *machine) {
			joins(m)
			require.NoError(t, os.Remove(m.h.Files.Path("/etc/resolv.conf")))
		}, []string{"OCA-1022"}, "the kubelet starts no pod"},
		"no server of systemd-resolved": {func(t *testing.T, m *machine) {
			answer(m, "systemctl is-active systemd-resolved", "active\n")
			put(t, m.h, "/run/systemd/resolve/resolv.conf", "# No DNS servers known.\nsearch .\n")
		}, []string{"OCA-1022"}, "set DNS=ADDRESS in /etc/systemd/resolved.conf"},
		"systemd-resolved": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/resolv.conf", "nameserver 127.0.0.53\n")
			answer(m, "systemctl is-active systemd-resolved", "active\n")
			put(t, m.h, "/run/systemd/resolve/resolv.conf", "nameserver 192.0.2.1\n")
		}, nil, ""},
		"systemd-resolved that was stopped": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/resolv.conf", "nameserver 127.0.0.53\n")
			put(t, m.h, "/run/systemd/resolve/resolv.conf", "nameserver 192.0.2.1\n")
		}, []string{"OCA-1021"}, "/etc/resolv.conf names 127.0.0.53"},
		"systemd-resolved that was stopped, and its empty file": {func(t *testing.T, m *machine) {
			put(t, m.h, "/run/systemd/resolve/resolv.conf", "# No DNS servers known.\n")
		}, nil, ""},
		"port taken": {func(t *testing.T, m *machine) {
			put(t, m.h, "/proc/net/tcp", tcpHeader+"   0: 00000000:192B 00000000:0000 0A 0 0 0 0\n")
			answer(m, "ss", "LISTEN 0 511 0.0.0.0:6443 0.0.0.0:* users:((\"nginx\",pid=4711,fd=6))\n")
		}, []string{"OCA-2001"}, "nginx (process 4711)"},
		"console's port taken": {func(t *testing.T, m *machine) {
			put(t, m.h, "/proc/net/tcp6", tcpHeader+"   0: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 0 0 0 0\n")
		}, []string{"OCA-2001"}, "the web console"},
		"foreign address":  {func(_ *testing.T, m *machine) { m.h.Config.Node.IP = "192.0.2.99" }, []string{"OCA-2002"}, "192.0.2.11 (eth0)"},
		"no address":       {func(_ *testing.T, m *machine) { m.h.Config.Node.IP = "" }, []string{"OCA-2002"}, "--node-ip"},
		"loopback address": {func(_ *testing.T, m *machine) { m.h.Config.Node.IP = "127.0.0.1" }, []string{"OCA-2002"}, "--node-ip"},
		"no default route": {func(t *testing.T, m *machine) { put(t, m.h, "/proc/net/route", "Iface\n") }, []string{"w OCA-2003"}, "default route"},
		"no default route beside IPv6 addresses": {func(t *testing.T, m *machine) {
			put(t, m.h, "/proc/net/route", "Iface\n")
			put(t, m.h, "/proc/net/ipv6_route", ipv6Route(strings.Repeat("0", 31)+"1", "80", "lo")+ipv6Route("fe80"+strings.Repeat("0", 28), "40", "eth0")+
				ipv6Route(strings.Repeat("0", 32), "00", "lo"))
		}, []string{"w OCA-2003"}, "default route"},
		"a default route for IPv6": {func(t *testing.T, m *machine) {
			put(t, m.h, "/proc/net/route", "Iface\n")
			put(t, m.h, "/proc/net/ipv6_route", ipv6Route(strings.Repeat("0", 32), "00", "eth0"))
		}, nil, ""},
		"node in the service network": {func(_ *testing.T, m *machine) {
			m.h.Config.Node.IP = "10.98.0.11"
			m.h.Facts.Interfaces = []host.Interface{{Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.98.0.11/24")}}}
		}, []string{"OCA-2004"}, "The service network 10.96.0.0/12 and the network 10.98.0.0/24 of interface eth0 overlap"},
		"a node in the network of the cluster's pods": {func(_ *testing.T, m *machine) {
			joins(m)
			config.OfCluster(m.h.Config, "192.0.0.0/8", "", "")
		}, []string{"OCA-2004"}, "those of a cluster cannot be changed"},
		"pod and service network": {func(_ *testing.T, m *machine) { m.h.Config.Cluster.PodNetworkCIDR = "10.100.0.0/16" }, []string{"OCA-2004"}, "overlap"},
		"own pod network is there": {func(_ *testing.T, m *machine) {
			m.h.Facts.Interfaces = append(m.h.Facts.Interfaces, host.Interface{Name: "cni0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.40.0.1/24")}})
		}, nil, ""},
		"a name server in the service network": {func(t *testing.T, m *machine) { put(t, m.h, "/etc/resolv.conf", "nameserver 10.100.0.53\n") }, []string{"OCA-2004"},
			"The service network 10.96.0.0/12 and the address of the name server 10.100.0.53 overlap"},
		"a name server in the service network of a running cluster": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/resolv.conf", "nameserver 10.100.0.53\n")
			own(t, m, "kind: InitConfiguration\n")
			put(t, m.h, kubernetes.KubeletKubeconfig, "x")
		}, nil, ""},
		"a route into the service network": {func(t *testing.T, m *machine) {
			put(t, m.h, "/proc/net/route", "Iface\neth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\neth0\t0000640A\t050200C0\t0003\t0\t0\t0\t0000FFFF\n")
		}, []string{"OCA-2004"}, "The service network 10.96.0.0/12 and the network 10.100.0.0/16 behind gateway 192.0.2.5 overlap"},
		"a route to all private networks": {func(t *testing.T, m *machine) {
			put(t, m.h, "/proc/net/route", "Iface\neth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\neth0\t0000000A\t050200C0\t0003\t0\t0\t0\t000000FF\n")
		}, nil, ""},
		"pods in the network of Docker": {func(_ *testing.T, m *machine) {
			m.h.Config.Cluster.PodNetworkCIDR = "172.16.0.0/12"
			m.h.Facts.Interfaces = append(m.h.Facts.Interfaces, host.Interface{Name: "docker0", Prefixes: []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}})
		}, []string{"OCA-2004"}, "the network 172.17.0.0/16 of interface docker0 overlap"},
		"no network":                         {func(_ *testing.T, m *machine) { m.h.Config.Cluster.ServiceCIDR = "10.96.0.0" }, []string{"OCA-2005"}, "--service-cidr"},
		"firewalld, whose ports ocadm opens": {func(_ *testing.T, m *machine) { answer(m, "firewall-cmd", "running\n") }, nil, ""},
		"firewalld, left to the user": {func(_ *testing.T, m *machine) {
			m.h.Config.Node.Firewall = config.FirewallManual
			answer(m, "firewall-cmd --state", "running\n")
			answer(m, "firewall-cmd --get-default-zone", "public\n")
		}, []string{"OCA-2007"}, "firewall-cmd --permanent --zone=trusted --add-interface=cni0"},
		"firewalld is stopped": {func(_ *testing.T, m *machine) {
			m.h.Config.Node.Firewall = config.FirewallManual
			answer(m, "firewall-cmd", "not running\n")
			answer(m, "systemctl is-active firewalld ufw", "active\n") // the unit is not checked
		}, nil, ""},
		"ufw, installed and inactive": {func(_ *testing.T, m *machine) {
			answer(m, "ufw", "Status: inactive\n")
			answer(m, "systemctl is-active firewalld ufw", "active\n") // as on every Ubuntu
		}, nil, ""},
		"ufw":                {func(_ *testing.T, m *machine) { answer(m, "ufw", "Status: active\n") }, []string{"OCA-2008"}, "ufw allow 6443/tcp\n"},
		"SELinux permissive": {func(t *testing.T, m *machine) { put(t, m.h, "/sys/fs/selinux/enforce", "0") }, nil, ""},
		"SELinux enforcing without the policy of containers": {func(t *testing.T, m *machine) {
			m.h.Facts.OS = host.OS{ID: "rocky", Managers: []string{"dnf"}}
			put(t, m.h, "/sys/fs/selinux/enforce", "1")
			put(t, m.h, "/etc/selinux/config", "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
		}, []string{"w OCA-1026"}, "dnf install -y container-selinux"},
		"SELinux enforcing with another policy": {func(t *testing.T, m *machine) {
			put(t, m.h, "/sys/fs/selinux/enforce", "1")
			put(t, m.h, "/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=mls\n")
		}, []string{"OCA-1026"}, "setenforce 0"},
		"SELinux enforcing and a containerd that confines": {func(t *testing.T, m *machine) {
			put(t, m.h, "/sys/fs/selinux/enforce", "1")
			put(t, m.h, "/etc/containerd/config.toml", "[plugins.'io.containerd.cri.v1.runtime']\n  enable_selinux = true\n")
		}, []string{"OCA-1026"}, "enable_selinux = false"},
		"network configuration of another program": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/cni/net.d/87-podman-bridge.conflist", "{}")
			put(t, m.h, "/etc/cni/net.d/05-cilium.conf", "{}")
			put(t, m.h, "/etc/cni/net.d/nerdctl/mynet.conflist", "{}") // containerd does not look into directories
			put(t, m.h, "/etc/cni/net.d/README", "")
		}, []string{"OCA-2009"}, "mv /etc/cni/net.d/05-cilium.conf /etc/cni/net.d/87-podman-bridge.conflist /root/"},
		"network configuration after ours": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/cni/net.d/10-flannel.conflist", "{}")
			put(t, m.h, "/etc/cni/net.d/87-podman-bridge.conflist", "{}")
		}, nil, ""},
		"network configuration before ours": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/cni/net.d/10-flannel.conflist", "{}")
			put(t, m.h, "/etc/cni/net.d/10-calico.conflist", "{}")
		}, []string{"OCA-2009"}, "10-calico.conflist"},
		"network configuration on a worker": {func(t *testing.T, m *machine) {
			m.kind = Join
			put(t, m.h, "/etc/cni/net.d/10-calico.conflist", "{}")
		}, []string{"w OCA-2009"}, "10-calico.conflist"},
		"a pod network of the user's own": {func(t *testing.T, m *machine) {
			m.h.Config.Addons.CNI = config.None
			put(t, m.h, "/etc/cni/net.d/10-calico.conflist", "{}")
		}, nil, ""},
		"two families, one address": {func(_ *testing.T, m *machine) {
			m.h.Config.Cluster.PodNetworkCIDR, m.h.Config.Cluster.ServiceCIDR = "10.40.0.0/16,fd40::/48", "10.96.0.0/12,fd96::/112"
			eth0 := &m.h.Facts.Interfaces[0]
			eth0.Prefixes = append(eth0.Prefixes, netip.MustParsePrefix("fe80::1/64"))
			m.h.Facts.Interfaces = append(m.h.Facts.Interfaces, host.Interface{Name: "eth1", Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::b/64")}})
		}, []string{"OCA-2010"}, "The interface eth0 has no IPv6 address"},
		"two families of the cluster, one address": {func(_ *testing.T, m *machine) {
			joins(m)
			config.OfCluster(m.h.Config, "10.40.0.0/16,fd40::/48", "10.96.0.0/12,fd96::/112", "")
		}, []string{"OCA-2010"}, "The interface eth0 has no IPv6 address"},
		"networks of a cluster that does not answer": {func(_ *testing.T, m *machine) {
			joins(m)
			m.h.Config.Cluster.PodNetworkCIDR, m.h.Config.Cluster.ServiceCIDR = "", ""
		}, nil, ""},
		"two families, two addresses": {func(_ *testing.T, m *machine) {
			m.h.Config.Cluster.PodNetworkCIDR, m.h.Config.Cluster.ServiceCIDR = "10.40.0.0/16,fd40::/48", "10.96.0.0/12,fd96::/112"
			eth0 := &m.h.Facts.Interfaces[0]
			eth0.Prefixes = append(eth0.Prefixes, netip.MustParsePrefix("2001:db8::b/64"))
		}, nil, ""},
		"several interfaces": {func(_ *testing.T, m *machine) {
			m.h.Config.Node.IP = "198.51.100.7" // not that of the default route
			m.h.Facts.Interfaces = append(m.h.Facts.Interfaces, host.Interface{Name: "eth1", Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24")}})
		}, nil, ""},
		"no registry": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/containerd/certs.d/registry.k8s.io/hosts.toml", "server = 'http://127.0.0.1:1'\n")
		}, []string{"OCA-2101"}, "--registry-mirror registry.k8s.io=URL"},
		"offline without a bundle": {func(t *testing.T, m *machine) {
			require.NoError(t, m.h.Files.RemoveAll("/etc/containerd/certs.d"))
			m.h.Config.Node.Offline = true
		}, []string{"OCA-2102"}, "ocadm init --offline --bundle FILE"},
		"offline with mirrors": {func(t *testing.T, m *machine) {
			require.NoError(t, m.h.Files.RemoveAll("/etc/containerd/certs.d"))
			m.h.Config.Node.Offline, m.h.Config.Node.RegistryMirrors = true, []string{"*=http://127.0.0.1:1"}
		}, nil, ""},
		"a registry without the images": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/containerd/certs.d/registry.k8s.io/hosts.toml", "server = 'http://"+registryOf(t, http.NotFound)+"'\n")
		}, []string{"OCA-2102"}, "does not have 7 images"},
		"a registry that wants a login": {func(t *testing.T, m *machine) {
			refuses := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
			put(t, m.h, "/etc/containerd/certs.d/registry.k8s.io/hosts.toml", "server = 'http://"+registryOf(t, refuses)+"'\n")
		}, []string{"OCA-2103"}, "--registry-config"},
		"damaged credentials": {func(t *testing.T, m *machine) {
			put(t, m.h, "/var/lib/kubelet/config.json", `{"auths":{"r":{"auth":"canary"}}}`)
		}, []string{"OCA-0325"}, "/var/lib/kubelet/config.json"},
		"images that containerd has": {func(t *testing.T, m *machine) {
			put(t, m.h, "/etc/containerd/certs.d/registry.k8s.io/hosts.toml", "server = 'http://127.0.0.1:1'\n")
			list, err := kubernetes.Images(m.h.Config)
			require.NoError(t, err)
			var out strings.Builder
			for _, image := range list {
				out.WriteString(image + " application/vnd.oci.image.index.v1+json sha256:1 1.0 MiB linux/amd64 -\n")
			}
			put(t, m.h, "/usr/local/bin/ctr", "")
			answer(m, "/usr/local/bin/ctr -n k8s.io images ls", out.String())
		}, nil, ""},
		"a version without checksums": {func(_ *testing.T, m *machine) { m.h.Config.Cluster.KubernetesVersion = "v1.35.99" }, []string{"OCA-2320"}, "v1.35.8"},
		"the minor version before":    {func(_ *testing.T, m *machine) { m.h.Config.Cluster.KubernetesVersion = "v1.35.8" }, nil, ""},
		"no bundle there":             {func(_ *testing.T, m *machine) { m.h.Config.Node.Bundle = "/nowhere/x.bundle" }, []string{"OCA-2301"}, "name a bundle"},
		"bundle of another architecture": {func(t *testing.T, m *machine) {
			m.h.Config.Node.Bundle = emptyBundle(t, "arm64", m.h.Config.Cluster.KubernetesVersion)
		}, []string{"OCA-2305"}, "arm64"},
		"bundle of another version": {func(t *testing.T, m *machine) {
			m.h.Config.Node.Bundle = emptyBundle(t, "amd64", "v1.35.0")
		}, []string{"OCA-2306"}, "v1.35.0"},
		"bundle without images": {func(t *testing.T, m *machine) {
			m.h.Config.Node.Bundle = emptyBundle(t, "amd64", m.h.Config.Cluster.KubernetesVersion)
		}, []string{"OCA-2307"}, " and 9 more"},
		"truncated bundle": {func(t *testing.T, m *machine) {
			m.h.Config.Node.Bundle = emptyBundle(t, "amd64", m.h.Config.Cluster.KubernetesVersion)
			require.NoError(t, os.Truncate(m.h.Config.Node.Bundle, 1024))
		}, []string{"OCA-2303"}, "copy or download"},
		"old containerd": {func(_ *testing.T, m *machine) {
			m.h.Facts.Programs = map[string]host.Program{"containerd": {Path: "/usr/bin/containerd", Version: "v1.6.20"}}
		}, []string{"OCA-3001"}, "v1.6.20"},
		"containerd 2.0": {func(_ *testing.T, m *machine) {
			m.h.Facts.Programs = map[string]host.Program{"containerd": {Version: "v2.0.5"}}
		}, []string{"OCA-3001"}, "2.1.0 or later"},
		"containerd of docker-ce, whose CRI is off": {func(t *testing.T, m *machine) { foreignContainerd(t, m, `disabled_plugins = ["cri"]`) }, []string{"OCA-2408"}, "disabled_plugins"},
		"containerd with CNI plugins elsewhere":     {func(t *testing.T, m *machine) { foreignContainerd(t, m, `bin_dirs = ['/usr/lib/cni']`) }, []string{"OCA-2408"}, "/usr/lib/cni"},
		"containerd that fits": {func(t *testing.T, m *machine) {
			foreignContainerd(t, m, "disabled_plugins = []\nbin_dirs = ['/opt/cni/bin']\nSystemdCgroup = true")
		}, nil, ""},
		"new containerd": {func(_ *testing.T, m *machine) {
			m.h.Facts.Programs = map[string]host.Program{"containerd": {Version: "v2.4.2"}}
		}, nil, ""},
		"database is away": {func(_ *testing.T, m *machine) {
			m.h.Config.Database = config.Database{Host: "127.0.0.1", Port: 1, User: "root", Password: "canary"}
		}, []string{"OCA-6001"}, "127.0.0.1:1"},
	})
}

// provoke checks the findings of each provocation.
func provoke(t *testing.T, tests map[string]provocation) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := goodMachine(t)
			tt.change(t, m)
			found := gather(t.Context(), m, checksButJoin(), map[string]float64{})
			var got []string
			var said strings.Builder
			for _, f := range found {
				code := f.Code
				if f.Severity == finding.Warning {
					code = "w " + code
				}
				got = append(got, code)
				said.WriteString(f.What + f.Cause + f.Remedy + "\n")
				if f.What == "" || f.Remedy == "" || f.Check == "" || strings.HasSuffix(f.What, ".") {
					t.Errorf("incomplete: %+v", f)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("findings (-want +got):\n%s%s", d, said.String())
			}
			if !strings.Contains(said.String(), tt.says) || strings.Contains(said.String(), "canary") {
				t.Errorf("they say:\n%s", said.String())
			}
		})
	}
}

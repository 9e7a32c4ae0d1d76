// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/lab/debian"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestDistributions creates a cluster of two machines with every other Debian release and removes it. The machines have addresses of two families,
// and a default route through an interface that is not the node's.
func TestDistributions(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_DISTRIBUTIONS") == "" {
		t.Skip("make distributions runs it: it takes minutes for each release")
	}
	log := logf(t)
	ocadm, bundle, err := scenario.Build(t.Context(), repository, version, "", log)
	require.NoError(t, err)
	others := slices.DeleteFunc(debian.Releases(), func(r string) bool { return r == debian.Release })
	for _, release := range others {
		t.Run(release, func(t *testing.T) {
			l := up(t, machine.Options{Nodes: 2, Ocadm: ocadm, Bundle: bundle, Distro: release, Logf: logf(t)})
			s := newSuite(t, l)
			for i := range l.Nodes() {
				s.shell(t, i+1, fmt.Sprintf("ip -6 address add fd98::%d/64 dev eth0 nodad && ip link add eth1 type veth peer name peer1 && ip link set eth1 up && ip link set peer1 up && "+
					"ip address add 198.51.100.%d/24 dev eth1 && ip route add default via 198.51.100.254 metric 1", i+1, i+1))
				s.fresh[i+1] = s.look(t, i+1)
			}
			s.otherNetworkIsRefused(t)
			s.twoFamilies(t)
			for i := range l.Nodes() {
				s.resetsCleanly(t, i+1)
			}
		})
	}
}

// shell runs a command line on a machine.
func (s *suite) shell(t *testing.T, node int, line string) string {
	t.Helper()
	out, err := s.On(t.Context(), node, "sh", "-ec", line)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// twoFamilyNetworks are the ranges of pods and services.
var twoFamilyNetworks = []string{"--pod-network-cidr", "10.40.0.0/16,fd40::/56", "--service-cidr", "10.96.0.0/12,fd96::/112"}

// otherNetworkIsRefused puts another program's network on a machine and removes its IPv6 address: init reports both and changes nothing.
func (s *suite) otherNetworkIsRefused(t *testing.T) {
	s.shell(t, 1, "mkdir -p /etc/cni/net.d && echo {} > /etc/cni/net.d/87-podman-bridge.conflist && ip -6 address del fd98::1/64 dev eth0")
	err := s.Init(t.Context(), twoFamilyNetworks...)
	if err == nil || !strings.Contains(err.Error(), "OCA-2009") || !strings.Contains(err.Error(), "OCA-2010") {
		t.Errorf("init beside another network: %v", err)
	}
	s.shell(t, 1, "rm -r /etc/cni && ip -6 address add fd98::1/64 dev eth0 nodad")
	compare(t, "a machine on which init was refused", s.fresh[1], s.look(t, 1))
}

// twoFamilies creates the cluster. Node 2 reaches a pod on node 1 through either family.
func (s *suite) twoFamilies(t *testing.T) {
	require.NoError(t, s.Init(t.Context(), twoFamilyNetworks...))
	network := "eth0/br0/" + s.Lab.Node(2).Address.String() + "/fd98::2" // otherwise the host agent would remove the IPv6 address
	require.NoError(t, s.Join(t.Context(), 2, "--host-networks", network))
	out, err := s.Kubectl(t.Context(), "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns", "-o", "jsonpath={.items[0].status.podIPs[*].ip}")
	addresses := strings.Fields(out)
	if err != nil || len(addresses) != 2 {
		t.Fatalf("a pod has the addresses %q (error %v)", addresses, err)
	}
	for _, a := range addresses {
		if strings.Contains(a, ":") {
			a = "[" + a + "]"
		}
		if got := s.shell(t, 2, "curl --silent --show-error --max-time 20 --retry 5 --retry-all-errors http://"+a+":8080/health"); got != "OK" {
			t.Errorf("%s answers %q", a, got)
		}
	}
}

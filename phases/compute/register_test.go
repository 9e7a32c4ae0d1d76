// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

func TestNetworkCommands(t *testing.T) {
	tests := map[string]struct {
		networks []string
		more     []host.Interface
		gateway  string
		want     []string
	}{
		"as the agent chooses": {nil, nil, "192.0.2.1", []string{"climc network-create --server-type baremetal --gateway 192.0.2.1 bcast0 hosts-192-0-2-10 192.0.2.10 192.0.2.10 24"}},
		"two subnets": {[]string{"eth0/br0/192.0.2.10", "eth1/br1/198.51.100.5", "eth2/br2/bcast0"}, []host.Interface{nic("eth1", "198.51.100.5/25")}, "192.0.2.1",
			[]string{"climc network-create --server-type baremetal --gateway 192.0.2.1 bcast0 hosts-192-0-2-10 192.0.2.10 192.0.2.10 24",
				"climc network-create --server-type baremetal bcast0 hosts-198-51-100-5 198.51.100.5 198.51.100.5 25"}},
		"one subnet twice": {[]string{"eth0/br0/192.0.2.10", "eth1/br1/192.0.2.11"}, []host.Interface{nic("eth1", "192.0.2.11/24")}, "",
			[]string{"climc network-create --server-type baremetal bcast0 hosts-192-0-2-10 192.0.2.10 192.0.2.10 24"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.Config.Node.HostNetworks = tt.networks
			m.Facts.Interfaces = append(m.Facts.Interfaces, tt.more...)
			m.Facts.Address = netip.MustParseAddr("192.0.2.10")
			if tt.gateway != "" {
				m.Facts.Gateway = netip.MustParseAddr(tt.gateway)
			}
			if d := cmp.Diff(tt.want, NetworkCommands(m.Host)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			m.Config.Node.EnableHostAgent = false
			if got := NetworkCommands(m.Host); got != nil {
				t.Errorf("on another node: %v", got)
			}
		})
	}
}

// The network must exist before the agent starts: preflight names it until the agent has run here.
func TestRegistration(t *testing.T) {
	m := newMachine(t)
	const command = "climc network-create --server-type baremetal bcast0 hosts-192-0-2-10 192.0.2.10 192.0.2.10 24"
	f := Registration(m.Host)
	if len(f) != 1 || f[0].Code != CodeRegistration || f[0].Severity != finding.Warning || !strings.HasSuffix(f[0].Remedy, command) {
		t.Errorf("%+v", f)
	}
	m.Facts.Interfaces = []host.Interface{{Name: "eth0", Kind: "device", Master: "ovs-system", MasterKind: kindSwitch},
		{Name: "br0", Kind: kindSwitch, Prefixes: m.Facts.Interfaces[0].Prefixes}}
	m.Config.Node.HostNetworks = []string{"eth0/br0/192.0.2.10"}
	if f := Registration(m.Host); len(f) > 0 {
		t.Errorf("the agent has run here: %+v", f)
	}
	m.Config.Node.HostNetworks, m.Facts.Interface = nil, "br0"
	if f := Registration(m.Host); len(f) > 0 {
		t.Errorf("the agent has chosen here: %+v", f)
	}
}

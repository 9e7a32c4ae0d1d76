// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

// It says which addresses move, and which do not.
func TestConsequencesOfFurtherAddresses(t *testing.T) {
	m := newMachine(t)
	m.Config.Node.HostNetworks = []string{"eth0/br0/192.0.2.10"}
	m.Facts.Interfaces = []host.Interface{nic("eth0", "198.51.100.1/24", "192.0.2.10/24")}
	got := strings.Join(consequences(m.Host), "\n")
	if !strings.Contains(got, "moves 192.0.2.10 and the routes") || !strings.Contains(got, "it removes 198.51.100.1 from eth0") {
		t.Error(got)
	}
}

func TestListenInterface(t *testing.T) {
	for name, want := range map[string]string{"br0": "", "eth1": "", "eth0": "give --listen-interface br0", "eth2": "no address", "eth9": "no interface eth9"} {
		m := newMachine(t)
		m.Facts.Interfaces = append(m.Facts.Interfaces, nic("eth1", "198.51.100.1/24"), nic("eth2"))
		m.Config.Node.HostNetworks, m.Config.Node.ListenInterface = []string{"eth0/br0/192.0.2.10"}, name
		got := HostNetworks(m.Host)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Code != CodeListenInterface || !strings.Contains(got[0].Cause, want)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestHostName(t *testing.T) {
	for _, tt := range []struct {
		node, machine string
		severity      finding.Severity
	}{{"node2", "node2", ""}, {"node2", "node2.example.org", finding.Warning}, {"node2", "NODE2", finding.Warning}, {"2node", "2node", finding.Error}, {"a.b", "a.b", finding.Error}, {"node2", "other", finding.Warning}} {
		m := newMachine(t)
		m.Config.Node.Name, m.Facts.Hostname = tt.node, tt.machine
		got := HostName(m.Host)
		if tt.severity == "" && len(got) > 0 || tt.severity != "" && (len(got) != 1 || got[0].Severity != tt.severity) {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

// Without networks, the agent would replace host.conf with all its options, including its password. So the file names those that the agent would choose.
func TestHostConfNamesTheNetworkOfTheDefaultRoute(t *testing.T) {
	m := newMachine(t)
	m.must(t, hostConfPhase())
	if got := m.read(t, hostConf); !strings.Contains(got, "\nnetworks: [eth0/br0/192.0.2.10]\n") {
		t.Errorf("host.conf:\n%s", got)
	}
	if st, err := m.Files.Stat(hostConf); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("everyone may read it: %v, %v", st, err)
	}
	m.boot(t)
	m.Config.Node.HostNetworks = []string{"eth0/br1/192.0.2.10"}
	m.must(t, hostConfPhase())
	if got := m.read(t, hostConf); !strings.Contains(got, "\nnetworks: [eth0/br1/192.0.2.10]\n") {
		t.Errorf("a later --host-networks:\n%s", got)
	}
	m.Config.Node.HostNetworks = nil
	m.Facts.Interfaces = []host.Interface{{Name: "eth0", Kind: "device", Master: "ovs-system", MasterKind: kindSwitch}, {Name: "br0", Kind: kindSwitch, Prefixes: nic("", "192.0.2.10/24").Prefixes}}
	m.Facts.Interface = "br0"
	if done, err := hostConfPhase().Check(t.Context(), m.Host); !done || err != nil {
		t.Errorf("after the agent has moved the address: %t, %v", done, err)
	}
}

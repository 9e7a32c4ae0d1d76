// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseHostNetwork(t *testing.T) {
	for s, want := range map[string]HostNetwork{
		"eth0/br0/192.0.2.10":                {NIC: "eth0", Bridge: "br0", Address: netip.MustParseAddr("192.0.2.10")},
		"bond0.7/br0/192.0.2.10/2001:db8::1": {NIC: "bond0.7", Bridge: "br0", Address: netip.MustParseAddr("192.0.2.10"), Address6: netip.MustParseAddr("2001:db8::1")},
		"eth0/br0/2001:db8::1":               {NIC: "eth0", Bridge: "br0", Address6: netip.MustParseAddr("2001:db8::1")},
		"eth1/br1/bcast0":                    {NIC: "eth1", Bridge: "br1", Wire: "bcast0"},
	} {
		got, err := ParseHostNetwork(s)
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
			t.Errorf("%s: %v\n%s", s, err, d)
		}
	}
	for s, says := range map[string]string{
		"":                                   "is not NIC/BRIDGE/ADDRESS",
		"eth0/192.0.2.10":                    "is not NIC/BRIDGE/ADDRESS",
		"eth0/br0/192.0.2.10/24":             "without a mask",
		"eth0/br0/192.0.2.300":               "neither an address",
		"eth0/br0/127.0.0.1":                 "cannot be the address of a node",
		"eth0/br0/192.0.2.1/192.0.2.2":       "at most one IPv4",
		"eth0/eth0/192.0.2.1":                "its own name",
		"eth0/brvpc/192.0.2.1":               "uses the bridge brvpc itself",
		"eth0/a-name-that-is-long/192.0.2.1": "not the name of a network interface",
		"eth0;reboot/br0/192.0.2.1":          "not the name of a network interface",
		"eth0/br0/a:b: c":                    "neither an address",
		"eth0/br0/2001:DB8::0010":            "write 2001:DB8::0010 as 2001:db8::10",
	} {
		if _, err := ParseHostNetwork(s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", s, err, says)
		}
	}
}

func FuzzParseHostNetwork(f *testing.F) {
	for _, s := range []string{"eth0/br0/192.0.2.10", "eth0/br0/192.0.2.10/2001:db8::1", "eth1/br1/bcast0", "///", "a/b/fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseHostNetwork(s)
		if err == nil && (strings.ContainsAny(n.NIC+n.Bridge+n.Wire, " \t\n'\"\\,:;$") || n.Wire == "" && !n.Address.IsValid() && !n.Address6.IsValid()) {
			t.Errorf("%q is %+v", s, n)
		}
	})
}

func TestHostAgentSettings(t *testing.T) {
	tests := map[string]struct {
		set  func(*Node)
		says string // "" means valid
	}{
		"good":            {func(n *Node) { n.HostNetworks = []string{"eth0/br0/192.0.2.10", "eth1/br1/192.0.2.11"} }, ""},
		"a bridge twice":  {func(n *Node) { n.HostNetworks = []string{"eth0/br0/192.0.2.10", "eth1/br0/192.0.2.11"} }, "an interface has one bridge"},
		"a broken one":    {func(n *Node) { n.HostNetworks = []string{"eth0"} }, "NIC/BRIDGE/ADDRESS"},
		"listen":          {func(n *Node) { n.ListenInterface = "a b" }, "not the name of a network interface"},
		"a relative path": {func(n *Node) { n.HostLocalImagePath = []string{"data"} }, "not an absolute path"},
		"the root":        {func(n *Node) { n.HostLocalImagePath = []string{"/"} }, "not an absolute path"},
		"huge pages":      {func(n *Node) { n.Hugepages = "many" }, "transparent, disable, native"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := Default()
			c.Node.EnableHostAgent = true
			tt.set(&c.Node)
			Complete(&c, Machine{Hostname: "node", Address: "192.0.2.10"})
			err := Validate(&c, ForInit)
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%v", err)
			}
		})
	}
	c := Default()
	c.Node.Hugepages = "native"
	if got := HostAgentOnly(&c); !cmp.Equal(got, []string{"--hugepages"}) {
		t.Errorf("%v", got)
	}
}

// Parse still accepts files written by an earlier "config print".
func TestRetiredKeysAreRead(t *testing.T) {
	values, err := Parse("f", []byte("apiVersion: ocadm.yunion.io/v1\nkind: Configuration\nnode: {glance: false, esxi: true, name: n1}\n"))
	if err != nil || len(values) != 1 || values["node.name"] != "n1" {
		t.Errorf("%v, %v", values, err)
	}
}

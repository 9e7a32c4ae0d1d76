// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// The node that holds the virtual address is the one whose own address has the same MAC address.
func TestSee(t *testing.T) {
	h, _ := machine(t)
	s := vip.Settings{Address: "10.0.0.100", RouterID: 77, Password: "canary88"}.With("10.0.0.1").With("10.0.0.2").With("10.0.0.3")
	raw, err := s.Text()
	require.NoError(t, err)
	if _, _, found := Own(h); found {
		t.Error("a node without keepalived has a virtual address")
	}
	require.NoError(t, h.Files.WriteFile(vip.SettingsFile, raw, 0o600))
	h.Config.Node.AdvertiseAddress = "10.0.0.1"
	own, self, found := Own(h)
	if !found || self != "10.0.0.1" || own.Address != s.Address {
		t.Fatalf("%v %q", found, self)
	}
	if see := See(t.Context(), h, own, self); see.Unseen == "" {
		t.Error("a machine without the address of the node sees the network")
	}
	answers := map[string][]string{"10.0.0.2": {"02:02"}, "10.0.0.100": {"02:02", "99:99"}}
	var asked []string
	before := holders
	t.Cleanup(func() { holders = before })
	holders = func(_ context.Context, iface string, addresses ...string) (map[string][]string, error) {
		asked = append([]string{iface}, addresses...)
		return answers, nil
	}
	h.Facts.Interfaces = []host.Interface{{Name: "br0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("10.0.0.100/32")}}}
	see := See(t.Context(), h, own, self)
	if !see.Here || see.Unseen != "" || !slices.Equal(see.Others, []why.Claimant{{MAC: "02:02", Peer: "10.0.0.2"}, {MAC: "99:99"}}) ||
		!slices.Equal(asked, []string{"br0", "10.0.0.100", "10.0.0.2", "10.0.0.3"}) {
		t.Errorf("%+v, asked %q", see, asked)
	}
}

// The holders in "ha status".
func TestSees(t *testing.T) {
	for name, c := range map[string]struct {
		see     why.VirtualAddress
		holder  string
		holds   string
		problem string
	}{
		"here":             {why.VirtualAddress{Here: true}, "a", "a", ""},
		"there":            {why.VirtualAddress{Others: []why.Claimant{{MAC: "m", Peer: "10.0.0.2"}}}, "b", "b", ""},
		"on both":          {why.VirtualAddress{Here: true, Others: []why.Claimant{{MAC: "m", Peer: "10.0.0.2"}}}, "a", "a b", "a and b have the virtual address"},
		"nowhere":          {why.VirtualAddress{}, "", "", "no machine has the virtual address"},
		"API server ended": {why.VirtualAddress{Here: true}, "", "a", "its API server does not answer there"},
		"foreign":          {why.VirtualAddress{Here: true, Others: []why.Claimant{{MAC: "99:99"}}}, "a", "a", "99:99"},
		"not seen":         {why.VirtualAddress{Unseen: "it is not an Ethernet interface"}, "", "", "the holder of the virtual address cannot be determined"},
		"answered, unseen": {why.VirtualAddress{Unseen: "it is not an Ethernet interface"}, "b", "b", ""},
	} {
		s := Status{Address: "10.0.0.100", Holder: c.holder, Nodes: []NodeStatus{{Name: "a", Address: "10.0.0.1", Holds: c.holder == "a"}, {Name: "b", Address: "10.0.0.2", Holds: c.holder == "b"}}}
		s.sees(c.see, "10.0.0.1")
		var holds []string
		for _, n := range s.Nodes {
			if n.Holds {
				holds = append(holds, n.Name)
			}
		}
		all := strings.Join(s.Problems, "; ")
		if strings.Join(holds, " ") != c.holds || !strings.Contains(all, c.problem) || c.problem == "" && all != "" {
			t.Errorf("%s: on %q, %q", name, holds, s.Problems)
		}
	}
}

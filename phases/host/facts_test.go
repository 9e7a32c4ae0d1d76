// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestDefaultRoute(t *testing.T) {
	list := []Interface{
		{Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")}},
		{Name: "eth1", Prefixes: []netip.Prefix{netip.MustParsePrefix("198.51.100.10/24"), netip.MustParsePrefix("203.0.113.10/24")}},
	}
	names := map[int]string{2: "eth0", 3: "eth1"}
	everywhere, other := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}
	for name, c := range map[string]struct {
		routes            []netlink.Route
		link, at, gateway string
	}{
		"the lowest metric": {[]netlink.Route{{Dst: everywhere, LinkIndex: 2, Gw: net.IPv4(192, 0, 2, 1), Priority: 200}, {Dst: other, LinkIndex: 2},
			{LinkIndex: 3, Gw: net.IPv4(198, 51, 100, 1), Priority: 100}}, "eth1", "198.51.100.10", "198.51.100.1"},
		"a gateway in the network of the second address": {[]netlink.Route{{LinkIndex: 3, Gw: net.IPv4(203, 0, 113, 1)}}, "eth1", "203.0.113.10", "203.0.113.1"},
		"a gateway in no network":                        {[]netlink.Route{{LinkIndex: 3, Gw: net.IPv4(192, 0, 2, 1)}}, "eth1", "198.51.100.10", "192.0.2.1"},
		"two ways at once": {[]netlink.Route{{Dst: everywhere, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 2, Gw: net.IPv4(192, 0, 2, 1)}, {LinkIndex: 3, Gw: net.IPv4(198, 51, 100, 1)}}}},
			"eth0", "192.0.2.10", "192.0.2.1"},
		"two ways with a source": {[]netlink.Route{{Src: net.IPv4(203, 0, 113, 9), MultiPath: []*netlink.NexthopInfo{{LinkIndex: 3, Gw: net.IPv4(198, 51, 100, 1)}, {LinkIndex: 2}}}},
			"eth1", "203.0.113.9", "198.51.100.1"},
	} {
		link, at, gateway := defaultOf(c.routes, list, names)
		if link != c.link || at.String() != c.at || gateway.String() != c.gateway {
			t.Errorf("%s: %s %s %s", name, link, at, gateway)
		}
	}
}

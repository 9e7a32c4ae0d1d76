// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

func interfaces() []Interface {
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var out []Interface
	for _, i := range list {
		n := Interface{Name: i.Name, MAC: i.HardwareAddr.String(), Up: i.Flags&net.FlagUp != 0}
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.Prefixes = append(n.Prefixes, p)
			}
		}
		out = append(out, n)
	}
	return out
}

// defaultAddress is the address that the default route uses: the route's own source, or the first IPv4 address of its interface.
func defaultAddress(list []Interface) (string, netip.Addr) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", netip.Addr{}
	}
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		link, err := net.InterfaceByIndex(r.LinkIndex)
		if err != nil {
			continue
		}
		if a, ok := netip.AddrFromSlice(r.Src.To4()); ok {
			return link.Name, a
		}
		for _, i := range list {
			for _, p := range i.Prefixes {
				if i.Name == link.Name && p.Addr().Is4() {
					return i.Name, p.Addr()
				}
			}
		}
	}
	return "", netip.Addr{}
}

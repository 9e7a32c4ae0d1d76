// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// interfaces returns the links of this machine with their addresses, and the names of all links by index.
func interfaces() ([]Interface, map[int]string) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, nil
	}
	names, kinds := map[int]string{}, map[int]string{}
	for _, l := range list {
		names[l.Attrs().Index], kinds[l.Attrs().Index] = l.Attrs().Name, l.Type()
	}
	var out []Interface
	for _, l := range list {
		a := l.Attrs()
		i := Interface{
			Name: a.Name, MAC: a.HardwareAddr.String(), Up: a.Flags&net.FlagUp != 0, Kind: l.Type(), Master: names[a.MasterIndex], MasterKind: kinds[a.MasterIndex],
		}
		_, err := os.Stat("/sys/class/net/" + a.Name + "/wireless")
		i.Wireless = err == nil
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			continue
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.IPNet.String())
			if err != nil {
				continue
			}
			i.Prefixes = append(i.Prefixes, p)
			if p.Addr().Is4() && a.Flags&unix.IFA_F_PERMANENT == 0 { // the kernel will remove it at a set time
				i.Leased = append(i.Leased, p.Addr())
			}
		}
		out = append(out, i)
	}
	return out, names
}

// defaultRoute returns the interface of the default route, the address it uses and its gateway. The address is the route's own source,
// or the first IPv4 address of the interface.
func defaultRoute(list []Interface, names map[int]string) (string, netip.Addr, netip.Addr) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", netip.Addr{}, netip.Addr{}
	}
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		gateway, _ := netip.AddrFromSlice(r.Gw.To4())
		if a, ok := netip.AddrFromSlice(r.Src.To4()); ok {
			return names[r.LinkIndex], a, gateway
		}
		for _, i := range list {
			for _, p := range i.Prefixes {
				if i.Name == names[r.LinkIndex] && p.Addr().Is4() {
					return i.Name, p.Addr(), gateway
				}
			}
		}
	}
	return "", netip.Addr{}, netip.Addr{}
}

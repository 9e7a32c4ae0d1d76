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

func interfaces() []Interface {
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	links := linksByIndex()
	var out []Interface
	for _, i := range list {
		n := Interface{Name: i.Name, MAC: i.HardwareAddr.String(), Up: i.Flags&net.FlagUp != 0}
		if l := links[i.Index]; l != nil {
			n.Kind, n.Leased = l.Type(), leased(l)
			if m := links[l.Attrs().MasterIndex]; m != nil {
				n.Master, n.MasterKind = m.Attrs().Name, m.Type()
			}
		}
		_, err := os.Stat("/sys/class/net/" + i.Name + "/wireless")
		n.Wireless = err == nil
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

func linksByIndex() map[int]netlink.Link {
	out := map[int]netlink.Link{}
	list, err := netlink.LinkList()
	if err != nil {
		return out
	}
	for _, l := range list {
		out[l.Attrs().Index] = l
	}
	return out
}

// leased are the addresses of a link that the kernel will remove at a set time.
func leased(l netlink.Link) []netip.Addr {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok && a.Flags&unix.IFA_F_PERMANENT == 0 {
			out = append(out, ip)
		}
	}
	return out
}

// defaultRoute returns the interface of the default route, the address it uses and its gateway. The address is the route's own source,
// or the first IPv4 address of the interface.
func defaultRoute(list []Interface) (string, netip.Addr, netip.Addr) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", netip.Addr{}, netip.Addr{}
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
		gateway, _ := netip.AddrFromSlice(r.Gw.To4())
		if a, ok := netip.AddrFromSlice(r.Src.To4()); ok {
			return link.Name, a, gateway
		}
		for _, i := range list {
			for _, p := range i.Prefixes {
				if i.Name == link.Name && p.Addr().Is4() {
					return i.Name, p.Addr(), gateway
				}
			}
		}
	}
	return "", netip.Addr{}, netip.Addr{}
}

// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"net/netip"
	"strings"

	"yunion.io/x/ocadm/phases/host"
)

// firstWire is the layer-2 network that a new cloud has.
const firstWire = "bcast0"

// NetworkCommands are the commands that create the networks in which this machine's host registers, one per subnet. Without such a
// network the host agent repeats "find_matched == false" (cloudpods, pkg/compute/models/networks.go, PerformTryCreateNetwork): it wants
// one of type baremetal with the host's mask, and its address or at least its subnet. So one address is enough, and leaves the rest of the
// subnet to virtual machines; the cloud adds the addresses of further hosts itself.
func NetworkCommands(h *host.Host) []string {
	if !h.Config.Node.EnableHostAgent {
		return nil
	}
	var out []string
	seen := map[netip.Prefix]bool{}
	for _, a := range hostAddresses(h) {
		p, ok := prefixOf(h.Facts, a)
		if !ok || p.IsSingleIP() || seen[p.Masked()] {
			continue
		}
		seen[p.Masked()] = true
		gateway := ""
		if g := h.Facts.Gateway; g.IsValid() && p.Contains(g) {
			gateway = "--gateway " + g.String() + " "
		}
		name := "hosts-" + strings.ReplaceAll(p.Masked().Addr().String(), ".", "-")
		out = append(out, fmt.Sprintf("climc network-create --server-type baremetal %s%s %s %s %s %d", gateway, firstWire, name, a, a, p.Bits()))
	}
	return out
}

// hostAddresses are the IPv4 addresses with which the host registers.
func hostAddresses(h *host.Host) []netip.Addr {
	var out []netip.Addr
	list, _ := networks(h)
	for _, n := range list {
		if n.Address.IsValid() {
			out = append(out, n.Address)
		}
	}
	return out
}

func prefixOf(f host.Facts, a netip.Addr) (netip.Prefix, bool) {
	for _, i := range f.Interfaces {
		for _, p := range i.Prefixes {
			if p.Addr() == a {
				return p, true
			}
		}
	}
	return netip.Prefix{}, false
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net/netip"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

func virtualAddressChecks() []Check {
	return []Check{{
		Name: "VirtualAddress", Short: "no machine has the address of --high-availability-vip, and it is in the node's network",
		Codes:   []string{"OCA-2011", "OCA-2012"},
		Applies: func(k Kind, c *config.Config) bool { return k == Init && c.Cluster.VirtualAddress != "" },
		run:     checkVirtualAddress,
	}}
}

func checkVirtualAddress(ctx context.Context, m *machine) []finding.Finding {
	address := m.h.Config.Cluster.VirtualAddress
	if m.ours() && m.h.Files.Exists(vip.ConfigFile) {
		return nil // this node may hold it
	}
	return m.free(ctx, address, "--high-availability-vip ADDRESS")
}

// FreeAddress returns findings about an address that is to replace a control plane's virtual address. again is the way to give it.
func FreeAddress(ctx context.Context, h *host.Host, address, again string) []finding.Finding {
	return (&machine{h: h}).free(ctx, address, again)
}

func (m *machine) free(ctx context.Context, address, again string) []finding.Finding {
	if !m.inNodeNetwork(address) {
		return []finding.Finding{finding.New("OCA-2012", "The virtual address "+address+" is not in the network of this node",
			"it must be reachable without a router, otherwise it could not move from one node to another; the node has "+m.h.Config.Node.IP,
			"give a free address of that network, or a load balancer: --control-plane-endpoint HOST:PORT")}
	}
	if m.h.Files.Root != "" {
		return nil // a test's directory has no network
	}
	mac, err := vip.Answers(ctx, address)
	if err != nil || mac == "" {
		return nil // no answer
	}
	return []finding.Finding{finding.New("OCA-2011", "Another machine has the virtual address "+address, "the machine with the MAC address "+mac+" answers",
		"give an address that no machine has: "+again)}
}

// VirtualAddress returns the findings about an existing control plane's virtual address.
func VirtualAddress(ctx context.Context, h *host.Host) []finding.Finding {
	return checkVirtualAddress(ctx, &machine{h: h})
}

// inNodeNetwork reports whether an address is in a network of the interface with the node's address. If the kernel does not know, it counts as one.
func (m *machine) inNodeNetwork(address string) bool {
	ip, _ := netip.ParseAddr(m.h.Config.Node.IP) // no interface has an invalid address
	_, network, known := m.h.Facts.With(ip)
	a, err := netip.ParseAddr(address)
	return !known || err == nil && network.Contains(a)
}

// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// firstWire is the layer-2 network of a new cloud.
const firstWire = "bcast0"

// NetworkCommands returns the commands that create the networks in which this machine's host registers, one per subnet. Without one the host agent
// repeats "find_matched == false" (cloudpods, pkg/compute/models/networks.go, PerformTryCreateNetwork): it wants a network of type baremetal with the
// host's mask that covers its address, or at least its subnet. One address is enough and leaves the rest of the subnet to virtual machines; the cloud
// adds the addresses of further hosts itself.
func NetworkCommands(h *host.Host) []string {
	if !h.Config.Node.EnableHostAgent {
		return nil
	}
	var out []string
	seen := map[netip.Prefix]bool{}
	for _, a := range hostAddresses(h) {
		_, p, ok := h.Facts.With(a)
		if !ok || p.IsSingleIP() || seen[p.Masked()] {
			continue
		}
		seen[p.Masked()] = true
		gateway := ""
		if g := h.Facts.Gateway; g.IsValid() && p.Contains(g) {
			gateway = "--gateway " + g.String() + " "
		}
		name := "hosts-" + strings.ReplaceAll(a.String(), ".", "-") // another host of the subnet may have created one as well
		out = append(out, fmt.Sprintf("climc network-create --server-type baremetal %s%s %s %s %s %d", gateway, firstWire, name, a, a, p.Bits()))
	}
	return out
}

// Registration returns a warning if a host agent is about to start here for the first time: its host can register only in an existing network of the
// cloud. Without an account in the cloud, ocadm cannot check that there is one.
func Registration(h *host.Host) []finding.Finding {
	commands := NetworkCommands(h)
	list, _ := Networks(h)
	moved := slices.ContainsFunc(list, func(n config.HostNetwork) bool {
		nic, ok := h.Facts.Named(n.NIC)
		return n.NIC == n.Bridge || ok && nic.MasterKind == kindSwitch
	})
	if len(commands) == 0 || moved {
		return nil
	}
	return []finding.Finding{finding.Warn(CodeRegistration, "The host appears in the cloud only if the cloud has a network for it",
		"ocadm cannot see whether the cloud has a network of type baremetal with the mask and the subnet of this machine's address",
		"check with climc network-list; if no such network exists, create one as administrator of the cloud: "+strings.Join(commands, "; ")).With(commands...)}
}

// hostAddresses returns the IPv4 addresses with which the host registers.
func hostAddresses(h *host.Host) []netip.Addr {
	list, _ := Networks(h)
	return lists.Pick(list, func(n config.HostNetwork) (netip.Addr, bool) { return n.Address, n.Address.IsValid() })
}

// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// HostNetwork is one network of a compute node: a network interface, the Open vSwitch bridge that it joins, and either the node's address on the
// bridge or the name of a wire. The host agent reads it as NIC/BRIDGE/ADDRESS or NIC/BRIDGE/WIRE.
type HostNetwork struct {
	NIC, Bridge string
	// Address is invalid if Wire is set. Address6 is an optional second address.
	Address, Address6 netip.Addr
	Wire              string
}

// linkName matches the interface names that Linux accepts, except those with "/", which separates the parts here.
var linkName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)

// agentBridges are the bridges that the host agent creates for itself.
var agentBridges = []string{"brvpc", "brmapped", "breip", "brlocal", "brtap"}

// ParseHostNetwork parses NIC/BRIDGE/ADDRESS, NIC/BRIDGE/ADDRESS/ADDRESS6 or NIC/BRIDGE/WIRE.
func ParseHostNetwork(s string) (HostNetwork, error) {
	parts := strings.Split(s, "/")
	if len(parts) < 3 || len(parts) > 4 {
		return HostNetwork{}, fmt.Errorf("%q is not NIC/BRIDGE/ADDRESS, for example eth0/br0/192.0.2.10", s)
	}
	n := HostNetwork{NIC: parts[0], Bridge: parts[1]}
	for _, name := range parts[:2] {
		if !linkName.MatchString(name) {
			return HostNetwork{}, fmt.Errorf("%q: %q is not the name of a network interface", s, name)
		}
	}
	switch {
	case n.NIC == n.Bridge:
		return HostNetwork{}, fmt.Errorf("%q: the bridge needs its own name, for example br0", s)
	case slices.Contains(agentBridges, n.Bridge):
		return HostNetwork{}, fmt.Errorf("%q: the host agent uses the bridge %s itself", s, n.Bridge)
	}
	for _, part := range parts[2:] {
		a, err := netip.ParseAddr(part)
		switch {
		case err != nil && len(parts) == 3 && linkOfCloud.MatchString(part):
			n.Wire = part
		case err != nil:
			return HostNetwork{}, fmt.Errorf("%q: %q is neither an address without a mask nor the name of a wire", s, part)
		case a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "":
			return HostNetwork{}, fmt.Errorf("%q: %s cannot be the address of a node", s, a)
		case a.String() != part:
			return HostNetwork{}, fmt.Errorf("%q: write %s as %s, because the host agent compares the text", s, part, a)
		case a.Is4() && !n.Address.IsValid():
			n.Address = a
		case a.Is6() && !n.Address6.IsValid():
			n.Address6 = a
		default:
			return HostNetwork{}, fmt.Errorf("%q: at most one IPv4 and one IPv6 address", s)
		}
	}
	return n, nil
}

// linkOfCloud matches the name of a wire. It starts with a letter, so that a mistyped address is not taken for a wire.
var linkOfCloud = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// hostAgent checks the settings of host.conf that do not depend on the machine.
func (v *validation) hostAgent() {
	n := v.c.Node
	nics, bridges := map[string]bool{}, map[string]bool{}
	for _, s := range n.HostNetworks {
		h, err := ParseHostNetwork(s)
		v.check("node.hostNetworks", err)
		if err == nil && (nics[h.NIC] || bridges[h.Bridge]) {
			v.add("node.hostNetworks", fmt.Sprintf("%q: an interface has one bridge, and a bridge one interface", s))
		}
		nics[h.NIC], bridges[h.Bridge] = true, true
	}
	if n.ListenInterface != "" && !linkName.MatchString(n.ListenInterface) {
		v.add("node.listenInterface", fmt.Sprintf("%q is not the name of a network interface", n.ListenInterface))
	}
	for _, p := range n.HostLocalImagePath {
		if !cleanPath(p) {
			v.add("node.hostLocalImagePath", fmt.Sprintf("%q is not an absolute path of a directory below /", p))
		}
	}
}

// HostAgentOnly returns the flags that were given but have no effect without --enable-host-agent: an earlier ocadm accepted them on every node.
func HostAgentOnly(c *Config) []string {
	if c.Node.EnableHostAgent {
		return nil
	}
	return lists.Pick(Settings(), func(s Setting) (string, bool) {
		return "--" + s.Flag, slices.Contains(hostConfKeys, s.Key) && Text(c, s.Key) != ""
	})
}

// hostConfKeys are the settings that go into a compute node's host.conf.
var hostConfKeys = []string{"node.hostNetworks", "node.listenInterface", "node.hostLocalImagePath", "node.hugepages"}

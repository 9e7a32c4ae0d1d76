// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// kindSwitch is the kernel's kind of Open vSwitch links: the bridges that the host agent creates, and the data path itself.
const kindSwitch = "openvswitch"

// defaultRoute is the source of networks that neither --host-networks nor host.conf names.
const defaultRoute = "the default route"

// Networks returns the networks that the host agent will use, and their source: --host-networks (checked by Validate), else host.conf, else the default route.
func Networks(h *host.Host) (list []config.HostNetwork, named string) {
	if n := h.Config.Node.HostNetworks; len(n) > 0 {
		return parsed(n), "--host-networks"
	}
	if n := inHostConf(h); len(n) > 0 {
		return parsed(n), hostConf
	}
	if !h.Facts.Address.IsValid() {
		return nil, ""
	}
	return []config.HostNetwork{implied(h.Facts)}, defaultRoute
}

// inHostConf returns the networks of host.conf. A file that is not valid YAML is reported by the phase that changes it.
func inHostConf(h *host.Host) []string {
	var file struct {
		Networks []string `yaml:"networks"`
	}
	if yaml.Unmarshal([]byte(h.Files.Text(hostConf)), &file) != nil {
		return nil
	}
	return file.Networks
}

func parsed(networks []string) []config.HostNetwork {
	return lists.Pick(networks, func(s string) (config.HostNetwork, bool) {
		n, err := config.ParseHostNetwork(s)
		return n, err == nil
	})
}

// implied returns the network that a host agent without configured networks uses: the interface and address of the default route, and the first free
// name for a bridge (cloudpods, pkg/hostman/hostinfo). An address that is already on a switch stays there: NIC and Bridge are then the same.
func implied(f host.Facts) config.HostNetwork {
	n := config.HostNetwork{NIC: f.Interface, Bridge: f.Interface, Address: f.Address}
	if i, ok := f.Named(f.Interface); ok && i.Kind == kindSwitch {
		return n
	}
	for free, k := false, 0; !free; k++ {
		n.Bridge = fmt.Sprintf("br%d", k)
		_, taken := f.Named(n.Bridge)
		free = !taken
	}
	return n
}

// HostNetworks returns findings about the host agent's networks and --listen-interface on this machine: first what cannot work, then what may cut the
// machine off, which --force accepts.
func HostNetworks(h *host.Host) []finding.Finding {
	if len(h.Facts.Interfaces) == 0 {
		return nil // the interfaces are unknown
	}
	list, named := Networks(h)
	var wrong, risky []string
	if named == "" {
		wrong = []string{"there is no default route, whose interface the host agent would use; name an interface in --host-networks"}
	}
	for _, n := range list {
		w, r := judge(h.Facts, h.Config.Node.IP, n)
		wrong, risky = append(wrong, w...), append(risky, r...)
	}
	subject, other := "A network of "+named, "correct it"
	if named == defaultRoute || named == "" {
		subject, other = "The network that the host agent uses without --host-networks", "name another interface: --host-networks NIC/BRIDGE/ADDRESS"
	}
	if len(list) == 1 && len(risky) == 1 {
		if n := withIPv6(h, list[0]); n != "" {
			other = "name the IPv6 address, too: --host-networks " + n
		}
	}
	var out []finding.Finding
	for _, s := range inHostConf(h) {
		if _, err := config.ParseHostNetwork(s); err != nil && named == hostConf {
			out = append(out, finding.Warn(CodeNetwork, "A network of "+hostConf+" cannot be compared with this machine", err.Error(), "correct it in "+hostConf))
		}
	}
	if len(wrong) > 0 {
		out = append(out, finding.Finding{Code: CodeNetwork, Severity: finding.Error, What: subject + " does not fit this machine",
			Cause: strings.Join(wrong, "; "), Remedy: "compare it with: ip -brief address", Evidence: wrong})
	}
	if len(risky) > 0 && !h.Config.Run.Force {
		out = append(out, finding.Finding{Code: CodeNetworkRisk, Severity: finding.Error, What: subject + " may cut this machine off from its network",
			Cause: strings.Join(risky, "; "), Remedy: other + "; or make sure that you can log in another way, such as through a console, and give --force", Evidence: risky})
	}
	return append(out, listenInterface(h, list)...)
}

// accepted returns the network errors that preflight would report. It is for the steps after which the host agent uses the networks: a step that runs
// alone has had no preflight.
func accepted(h *host.Host) error {
	if finding.Ignored(CheckNetworks, h.Config.Run.IgnorePreflightErrors) {
		return nil
	}
	return finding.List(HostNetworks(h)).Err()
}

// judge compares a network with the machine. own is the address under which the cluster knows this node.
func judge(f host.Facts, own string, n config.HostNetwork) (wrong, risky []string) {
	if n.NIC == n.Bridge {
		return nil, nil // the agent keeps it
	}
	nic, ok := f.Named(n.NIC)
	if !ok {
		others := "and no other that the cloud can use"
		if list := hardware(f); len(list) > 0 {
			others = "only " + strings.Join(list, ", ")
		}
		return []string{fmt.Sprintf("there is no interface %s, %s", n.NIC, others)}, nil
	}
	bridge, exists := f.Named(n.Bridge)
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	risk := func(format string, args ...any) { risky = append(risky, fmt.Sprintf(format, args...)) }
	if exists && bridge.Kind != kindSwitch {
		bad("%s exists and is not an Open vSwitch bridge; choose another name", n.Bridge)
	}
	switch {
	case nic.Name == "lo" || slices.Contains([]string{"bridge", "dummy", kindSwitch, "ifb"}, nic.Kind):
		bad("%s is not an interface to the outside", n.NIC)
	case nic.Master != "" && nic.MasterKind != kindSwitch:
		bad("%s is part of %s; name that instead", n.NIC, nic.Master)
	}
	addresses := slices.Concat(globals(nic), globals(bridge))
	for _, a := range []netip.Addr{n.Address, n.Address6} {
		if a.IsValid() && !slices.Contains(addresses, a) {
			bad("%s does not have the address %s, but %s", n.NIC, a, orNone(globals(nic)))
		}
	}
	if n.Wire != "" && len(globals(nic)) > 0 {
		bad("%s has the address %s, and a network with a wire (%s) must have none: give %s/%s/%s", n.NIC, globals(nic)[0], n.Wire, n.NIC, n.Bridge,
			globals(nic)[0])
	}
	if len(wrong) > 0 || nic.MasterKind == kindSwitch {
		return wrong, nil // nothing moves any more
	}
	if a, err := netip.ParseAddr(own); err == nil && slices.Contains(globals(nic), a) && a != n.Address && a != n.Address6 {
		risk("%s has %s, the address of this node in the cluster, but %s would move to %s", n.NIC, own, n.Address, n.Bridge)
	}
	if gone := lost(nic, n); len(gone) > 0 {
		risk("%s also has %s, which the host agent removes: it moves one IPv4 and one IPv6 address at most, those of NIC/BRIDGE/ADDRESS/ADDRESS6", n.NIC, orNone(gone))
	}
	for _, a := range nic.Leased {
		if slices.Contains(globals(nic), a) {
			risk("%s on %s is leased (DHCP), and nothing renews it once it is on %s; configure it as a static address", a, n.NIC, n.Bridge)
		}
	}
	if nic.Wireless {
		risk("%s is wireless, and access points drop packets that a bridge sends", n.NIC)
	}
	if nic.Kind == "vlan" {
		risk("%s is a VLAN interface; it shares the MAC address of its parent, and the cloud then refuses the host at its second start", n.NIC)
	}
	return nil, risky
}

// withIPv6 returns a network with the IPv6 address that its interface also has, "" if that does not remove every risk.
func withIPv6(h *host.Host, n config.HostNetwork) string {
	nic, _ := h.Facts.Named(n.NIC)
	gone := lost(nic, n)
	if len(gone) == 0 || gone[0].Is4() || !n.Address.IsValid() {
		return ""
	}
	n.Address6 = gone[0]
	if _, risky := judge(h.Facts, h.Config.Node.IP, n); len(risky) > 0 {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s/%s", n.NIC, n.Bridge, n.Address, n.Address6)
}

// lost returns the addresses that the host agent removes from the interface of a network when it moves the network's own to the bridge (cloudpods since
// v4.0.2, SBaseBridgeDriver.Setup). A keepalived assigns its address, which has no subnet, again. Routers announce IPv6 addresses again, but the agent
// accepts them on the bridge only beside one of its own.
func lost(nic host.Interface, n config.HostNetwork) []netip.Addr {
	return lists.Pick(nic.Prefixes, func(p netip.Prefix) (netip.Addr, bool) {
		a := p.Addr()
		kept := a.IsLinkLocalUnicast() || a == n.Address || a == n.Address6 || a.Is4() && p.IsSingleIP() || a.Is6() && n.Address6.IsValid()
		return a, !kept
	})
}

// listenInterface returns a finding if the host agent would listen on an interface without an address.
func listenInterface(h *host.Host, list []config.HostNetwork) []finding.Finding {
	name := h.Config.Node.ListenInterface
	if name == "" {
		return nil
	}
	wrong := ""
	i, ok := h.Facts.Named(name)
	for _, n := range list {
		switch {
		case n.Bridge == name && n.Wire == "":
			return nil // it will get the address of its interface
		case n.NIC == name:
			wrong = fmt.Sprintf("the address of %s moves to %s; give --listen-interface %s", name, n.Bridge, n.Bridge)
		}
	}
	switch {
	case wrong != "":
	case !ok:
		wrong = "there is no interface " + name
	case len(globals(i)) == 0:
		wrong = name + " has no address"
	default:
		return nil
	}
	return []finding.Finding{{Code: CodeListenInterface, Severity: finding.Error, What: "The host agent cannot listen on " + name, Cause: wrong,
		Remedy: "omit --listen-interface, or name the bridge of --host-networks that has this node's address"}}
}

// consequences describes what the host agent will do to the addresses of this machine.
func consequences(h *host.Host) []string {
	var out []string
	list, _ := Networks(h)
	for _, n := range list {
		if nic, ok := h.Facts.Named(n.NIC); ok && n.NIC != n.Bridge && n.Wire == "" && len(globals(nic)) > 0 {
			moved := slices.DeleteFunc([]netip.Addr{n.Address, n.Address6}, func(a netip.Addr) bool { return !a.IsValid() })
			removed := ""
			if gone := lost(nic, n); len(gone) > 0 {
				removed = fmt.Sprintf("it removes %s from %s; ", orNone(gone), n.NIC)
			}
			out = append(out, fmt.Sprintf("when the host agent first starts, it creates the bridge %s, adds %s to it and moves %s and the routes of %s there; %s"+
				"connections pause for a few seconds",
				n.Bridge, n.NIC, orNone(moved), n.NIC, removed))
		}
	}
	return out
}

var hostName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*$`)

// HostName returns a finding if the cloud refuses this host name: its rule is stricter than that of Kubernetes.
func HostName(h *host.Host) []finding.Finding {
	name := h.Config.Node.Name
	switch {
	case !hostName.MatchString(name):
		return []finding.Finding{{Code: CodeHostName, Severity: finding.Error, What: "The cloud refuses a host with the name " + name,
			Cause: "the name of a host starts with a letter and contains only letters, digits and hyphens", Remedy: "hostnamectl set-hostname NAME"}}
	case h.Facts.Hostname != "" && h.Facts.Hostname != name:
		// The agent registers os.Hostname(), and region reads the Node of that name before it rescues virtual machines: SHost.OnHostDown (v4.0.4).
		return []finding.Finding{finding.Warn(CodeHostName, "The node's name differs from the machine's name",
			fmt.Sprintf("the cloud looks for the node under the name of the machine, %s, and not under %s: when the host is lost, "+
				"its virtual machines may not be started on other hosts", h.Facts.Hostname, name), "hostnamectl set-hostname "+name)}
	}
	return nil
}

// globals returns the addresses of an interface that are not link-local.
func globals(i host.Interface) []netip.Addr {
	return lists.Pick(i.Prefixes, func(p netip.Prefix) (netip.Addr, bool) {
		a := p.Addr()
		return a, !a.IsLinkLocalUnicast()
	})
}

// hardware returns the names of the interfaces that a network can use.
func hardware(f host.Facts) []string {
	return lists.Pick(f.Interfaces, func(i host.Interface) (string, bool) {
		return i.Name, slices.Contains([]string{"", "device", "bond", "team"}, i.Kind) && i.Name != "lo" && i.Master == ""
	})
}

func orNone(addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return "none"
	}
	out := lists.Map(addresses, netip.Addr.String)
	return strings.Join(out, ", ")
}

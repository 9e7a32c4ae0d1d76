// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// linkChecks check the machine's links, routes, packet filter and names. What cannot be read is given the benefit of the doubt.
func linkChecks() []Check {
	return []Check{
		{Name: "MTU", Short: "the MTU of the node's interface is large enough for the pod network", Codes: []string{"OCA-2013"}, run: checkMTU},
		{Name: "PathMTU", Short: "large packets reach the control plane", Codes: []string{"OCA-2014"},
			Applies: func(k Kind, _ *config.Config) bool { return k == Join }, run: checkPathMTU},
		{Name: "Routes", Short: "there is one default route", Codes: []string{"OCA-2015"}, run: checkRoutes},
		{Name: "Lease", Short: "the node's address is not leased", Codes: []string{"OCA-2016"}, run: checkLease},
		{Name: "KernelFamilies", Short: "the kernel has IPv6 if the pod network has", Codes: []string{"OCA-2017"}, run: checkIPv6},
		{Name: "PacketPolicy", Short: "packet rules of other programs do not drop everything", Codes: []string{"OCA-2018"}, run: checkPacketPolicy},
		{Name: "LeftRules", Short: "no packet rules of an earlier cluster are left", Codes: []string{"OCA-2019"}, run: checkLeftRules},
		{Name: "LeftLinks", Short: "no links of an earlier pod network are left", Codes: []string{"OCA-2020"}, run: checkLeftLinks},
		{Name: "IPTables", Short: "iptables writes each rule once", Codes: []string{"OCA-2021"}, run: checkIPTables},
		{Name: "NetworkManager", Short: "NetworkManager leaves the links of pods alone", Codes: []string{"OCA-2022"}, run: checkNetworkManager},
		{Name: "CloudRoutes", Short: "no program rewrites the routes of a virtual machine", Codes: []string{"OCA-2023"}, run: checkCloudRoutes},
		{Name: "LocalPorts", Short: "connections of the machine do not use node ports", Codes: []string{"OCA-2024"}, run: checkLocalPorts},
		{Name: "Localhost", Short: "localhost is this machine", Codes: []string{"OCA-1054"}, run: checkLocalhost},
		{Name: "NameServers", Short: "pods get all name servers and search domains", Codes: []string{"OCA-1055"}, run: checkNameServers},
		{Name: "Wildcard", Short: "no search domain answers for every name", Codes: []string{"OCA-1056"}, run: checkWildcard},
		{Name: "Proxy", Short: "the proxies answer", Codes: []string{"OCA-2025"}, run: checkProxy},
	}
}

// link returns the interface with the node's address.
func (m *machine) link() (host.Interface, bool) {
	ip, _ := netip.ParseAddr(m.h.Config.Node.IP) // no interface has an invalid address
	i, _, found := m.h.Facts.With(ip)
	return i, found
}

// mtu returns the link of the node's address and its MTU, 0 if unknown.
func (m *machine) mtu() (string, int) {
	link, found := m.link()
	if !found {
		return "", 0
	}
	return link.Name, m.number("/sys/class/net/" + link.Name + "/mtu")
}

func checkMTU(_ context.Context, m *machine) []finding.Finding {
	const overlay, least = 50, 1280 // VXLAN takes 50 bytes, and IPv6 needs 1280 inside it
	name, mtu := m.mtu()
	if mtu == 0 || mtu >= least+overlay || m.h.Config.Addons.CNI == config.None {
		return nil
	}
	return []finding.Finding{finding.New("OCA-2013", "The MTU of the node's interface is too small for the pod network",
		fmt.Sprintf("%s carries packets of %d bytes; the pod network needs %d", name, mtu, least+overlay),
		fmt.Sprintf("ip link set %s mtu 1500, and set it where the link is configured", name))}
}

// checkPathMTU sends a packet of the largest size with fragmentation forbidden: a tunnel on the path drops it, and large answers never arrive.
func checkPathMTU(ctx context.Context, m *machine) []finding.Finding {
	const headers, small = 28, 1000 // of IPv4 and ICMP
	target := config.HostOf(m.h.Config.Join.Endpoint)
	_, mtu := m.mtu()
	if ip, err := netip.ParseAddr(target); mtu == 0 || err != nil || !ip.Is4() {
		return nil
	}
	ping := func(size int) bool {
		out, ok := m.output(ctx, "ping", "-M", "do", "-c", "1", "-W", "1", "-s", strconv.Itoa(size), target)
		return ok && strings.Contains(out, "1 received")
	}
	if ping(mtu-headers) || !ping(small) { // the second: it answers no ping at all
		return nil
	}
	return []finding.Finding{finding.New("OCA-2014", "Large packets do not reach the control plane",
		fmt.Sprintf("a packet of %d bytes to %s is lost, one of %d arrives: a link on the way has a smaller MTU", mtu, target, small+headers),
		fmt.Sprintf("tracepath %s shows where; set the MTU of the link on every node to the value that it prints", target))}
}

func checkRoutes(_ context.Context, m *machine) []finding.Finding {
	for _, links := range defaultRoutes(m.h.Files) {
		if len(links) > 1 {
			return []finding.Finding{finding.Warn("OCA-2015", "There are several default routes",
				"those by "+strings.Join(links, " and ")+" have the same metric: the route in use may change, and with it the address of the node",
				"keep one (ip route), or give them different metrics")}
		}
	}
	return nil
}

// defaultRoutes returns the links with an IPv4 default route, by metric.
func defaultRoutes(files host.Files) map[string][]string {
	metrics := map[string][]string{}
	for _, r := range files.Routes() {
		if r.To.Bits() == 0 {
			metrics[r.Metric] = append(metrics[r.Metric], r.Link)
		}
	}
	return metrics
}

// defaultRoute6 reports whether there is an IPv6 default route. The kernel always lists one by lo, which rejects packets.
func defaultRoute6(files host.Files) bool {
	for line := range strings.Lines(files.Text("/proc/net/ipv6_route")) {
		const bits, link = 1, 9
		if f := strings.Fields(line); len(f) > link && f[bits] == "00" && strings.Trim(f[0], "0") == "" && f[link] != "lo" {
			return true
		}
	}
	return false
}

func checkLease(_ context.Context, m *machine) []finding.Finding {
	link, found := m.link()
	ip, err := netip.ParseAddr(m.h.Config.Node.IP)
	if !found || err != nil || !slices.Contains(link.Leased, ip) {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-2016", "The address of the node is leased",
		fmt.Sprintf("%s of %s comes from DHCP: if it changes, the node is lost to the cluster", ip, link.Name),
		"give the machine a fixed address, or reserve this one in the DHCP server")}
}

func checkIPv6(_ context.Context, m *machine) []finding.Finding {
	cidrs, err := config.CIDRs(m.h.Config.Cluster.PodNetworkCIDR)
	wants := err == nil && slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Addr().Is6() })
	off := m.number("/proc/sys/net/ipv6/conf/all/disable_ipv6") == 1 || strings.Contains(" "+m.h.Files.Text("/proc/cmdline"), " ipv6.disable=1")
	if !wants || !off {
		return nil
	}
	return []finding.Finding{finding.New("OCA-2017", "IPv6 is off on this machine", "the pod network has IPv6: "+m.h.Config.Cluster.PodNetworkCIDR,
		"sysctl -w net.ipv6.conf.all.disable_ipv6=0, and remove ipv6.disable=1 from the kernel's arguments; or remove IPv6 from --pod-network-cidr")}
}

func checkPacketPolicy(ctx context.Context, m *machine) []finding.Finding {
	if m.joined() {
		return nil
	}
	rules, _ := m.output(ctx, "iptables", "-S") // a machine may have only nft
	open := lists.Pick(config.Ports(m.h.Config, m.kind == Init), func(p config.PortUse) (string, bool) { return p.String(), p.Reached })
	needed := strings.Join(open, ", ") + ", and everything from " + strings.Join(config.PodInterfaces(), " and ")
	if strings.Contains(rules, "-P INPUT DROP") && !strings.Contains(rules, "ufw-") {
		return []finding.Finding{finding.Warn("OCA-2018", "Packet rules may drop the cluster's traffic",
			"the policy of the chain INPUT is DROP, and no firewall that ocadm supports opens ports in it",
			"accept "+needed+"; or: iptables -P INPUT ACCEPT")}
	}
	if m.h.Config.Addons.CNI == config.None && strings.Contains(rules, "-P FORWARD DROP") {
		return []finding.Finding{finding.Warn("OCA-2018", "Packet rules drop traffic between pods",
			"the policy of the chain FORWARD is DROP, as Docker sets it, and ocadm installs no pod network that opens it",
			"iptables -P FORWARD ACCEPT, and make sure that it stays so after a reboot")}
	}
	list, _ := m.output(ctx, "nft", "list", "chains")
	if chain := dropsByNFT(list); chain != "" {
		return []finding.Finding{finding.Warn("OCA-2018", "Packet rules may drop the cluster's traffic",
			"the policy of the nft chain "+chain+" is drop; what other tables accept, such as those of the pod network and kube-proxy, does not matter to it",
			"accept "+needed+" in it; or: nft chain "+chain+" '{ policy accept; }'; and change the file that sets it, such as /etc/nftables.conf")}
	}
	return nil
}

var drops = regexp.MustCompile(`hook (input|forward) .*policy drop;`)

// dropsByNFT returns the first chain, "FAMILY TABLE CHAIN", that drops what it does not name; "" if there is none. Those of iptables have upper-case names.
func dropsByNFT(list string) string {
	var table, chain string
	for line := range strings.Lines(list) {
		switch f := strings.Fields(line); {
		case len(f) > 2 && f[0] == "table":
			table = f[1] + " " + f[2]
		case len(f) > 1 && f[0] == "chain":
			chain = f[1]
		case drops.MatchString(line) && (strings.HasPrefix(table, "inet ") || strings.HasPrefix(table, "ip ")) && chain != "INPUT" && chain != "FORWARD":
			return table + " " + chain
		}
	}
	return ""
}

var chains = regexp.MustCompile(`(?m)^-N ((?:KUBE|CALI|cali|CILIUM|FLANNEL|WEAVE)-\S+)`)

func checkLeftRules(ctx context.Context, m *machine) []finding.Finding {
	if m.initialised() || m.ours() {
		return nil
	}
	rules, _ := m.output(ctx, "iptables", "-t", "nat", "-S")
	found := chains.FindAllStringSubmatch(rules, -1)
	if len(found) == 0 {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-2019", "Packet rules of an earlier cluster are left",
		fmt.Sprintf("%d chains, the first is %s: they misdirect traffic to services of the new cluster", len(found), found[0][1]),
		"reboot, or reset the earlier cluster with its own tool")}
}

func checkLeftLinks(_ context.Context, m *machine) []finding.Finding {
	if m.initialised() || m.ours() {
		return nil
	}
	pods := regexp.MustCompile(`^(cni0|flannel\.\d+|flannel-v6\.\d+|kube-ipvs0|vxlan\.calico|tunl0@.*|cilium_(host|net|vxlan)|weave|kube-bridge)$`)
	cidrs, err := config.CIDRs(m.h.Config.Cluster.PodNetworkCIDR)
	var left []string
	for _, i := range m.h.Facts.Interfaces {
		mine := err == nil && len(i.Prefixes) > 0 && !slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool {
			return !slices.ContainsFunc(cidrs, func(c netip.Prefix) bool { return c.Contains(p.Addr()) })
		})
		if pods.MatchString(i.Name) && !mine {
			left = append(left, i.Name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-2020", "Links of an earlier pod network are left",
		strings.Join(left, ", ")+": a bridge with its old address cannot connect pods of the new network",
		"ip link delete "+left[0]+", and the others; or reboot")}
}

func checkIPTables(ctx context.Context, m *machine) []finding.Finding {
	out, ok := m.output(ctx, "iptables", "--version")
	if !ok || !strings.Contains(out, "nf_tables") || !brokenIPTables(out) {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-2021", "This iptables writes rules twice",
		strings.TrimSpace(out)+": releases 1.8.0 to 1.8.4 with nf_tables add a rule that already exists, until the machine is slow",
		"update iptables to 1.8.5 or later, or: update-alternatives --set iptables /usr/sbin/iptables-legacy")}
}

func checkNetworkManager(ctx context.Context, m *machine) []finding.Finding {
	if _, active := m.output(ctx, "systemctl", "is-active", "--quiet", "NetworkManager"); !active || m.h.Config.Addons.CNI == config.None {
		return nil
	}
	for _, f := range m.h.Files.Glob("/etc/NetworkManager/conf.d/*.conf", "/etc/NetworkManager/NetworkManager.conf", "/usr/lib/NetworkManager/conf.d/*.conf") {
		if text := m.h.Files.Text(f); strings.Contains(text, "unmanaged-devices") && strings.Contains(text, "flannel") {
			return nil
		}
	}
	return []finding.Finding{finding.Warn("OCA-2022", "NetworkManager may change the links of pods",
		"it manages every link that no file excludes, and removes routes of cni0 and flannel when it is restarted",
		"printf '[keyfile]\\nunmanaged-devices=interface-name:cni*;interface-name:flannel*;interface-name:veth*\\n' "+
			">/etc/NetworkManager/conf.d/90-pods.conf && systemctl reload NetworkManager")}
}

func checkCloudRoutes(ctx context.Context, m *machine) []finding.Finding {
	for _, unit := range []string{"nm-cloud-setup.service", "nm-cloud-setup.timer"} {
		if _, enabled := m.output(ctx, "systemctl", "is-enabled", "--quiet", unit); enabled {
			return []finding.Finding{finding.New("OCA-2023", "nm-cloud-setup would cut off pods",
				unit+" is enabled: it adds routing rules that send packets of pods out of the machine",
				"systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer, then reboot")}
		}
	}
	return nil
}

func checkLocalPorts(_ context.Context, m *machine) []finding.Finding {
	const first, last = 30000, 32767 // node ports
	f := strings.Fields(m.h.Files.Text("/proc/sys/net/ipv4/ip_local_port_range"))
	if len(f) != 2 {
		return nil
	}
	from, err1 := strconv.Atoi(f[0])
	to, err2 := strconv.Atoi(f[1])
	if err1 != nil || err2 != nil || from > last || to < first || strings.TrimSpace(m.h.Files.Text("/proc/sys/net/ipv4/ip_local_reserved_ports")) != "" {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-2024", "Connections of the machine can use node ports",
		fmt.Sprintf("they use ports %d to %d, and services of the cloud %d to %d", from, to, first, last),
		fmt.Sprintf("sysctl -w net.ipv4.ip_local_reserved_ports=%d-%d, and set it in /etc/sysctl.d", first, last))}
}

func checkLocalhost(ctx context.Context, m *machine) []finding.Finding {
	all, err := m.local(ctx, "localhost")
	if err == nil && slices.ContainsFunc(all, func(a string) bool { ip, err := netip.ParseAddr(a); return err == nil && ip.IsLoopback() }) {
		return nil
	}
	cause := "it resolves to " + strings.Join(all, ", ")
	if err != nil || len(all) == 0 {
		cause = "it does not resolve"
	}
	return []finding.Finding{finding.New("OCA-1054", "localhost is not this machine",
		cause+"; the kubelet and the probes of etcd use the name", "add to /etc/hosts: 127.0.0.1 localhost")}
}

// resolvConf returns the resolv.conf that the kubelet gives to pods. A systemd-resolved that was stopped leaves its file in place. Source: kubeadm
// app/componentconfigs/kubelet_unix.go.
func (m *machine) resolvConf(ctx context.Context) string {
	if state, _ := m.output(ctx, "systemctl", "is-active", "systemd-resolved"); slices.Contains([]string{"active", "activating"}, strings.TrimSpace(state)) {
		return "/run/systemd/resolve/resolv.conf"
	}
	return "/etc/resolv.conf"
}

// search returns the search domains of the machine.
func search(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "search" { // the last line wins
			out = f[1:]
		}
	}
	return out
}

func checkNameServers(ctx context.Context, m *machine) []finding.Finding {
	const mostServers, mostDomains, own = 3, 32, 3 // the kubelet's limits; three domains are the cluster's
	text := m.h.Files.Text(m.resolvConf(ctx))
	servers := len(nameServers(text))
	switch domains := len(search(text)); {
	case servers > mostServers:
		return []finding.Finding{finding.Warn("OCA-1055", "Pods do not get all name servers",
			fmt.Sprintf("the machine has %d, and a pod gets the first %d", servers, mostServers),
			"leave at most three nameserver lines in /etc/resolv.conf")}
	case domains > mostDomains-own:
		return []finding.Finding{finding.Warn("OCA-1055", "Pods do not get all search domains",
			fmt.Sprintf("the machine has %d, and a pod gets %d in addition to the cluster's", domains, mostDomains-own),
			"keep only the needed ones in /etc/resolv.conf")}
	}
	return nil
}

func checkWildcard(ctx context.Context, m *machine) []finding.Finding {
	const nothing = "ocadm-looks-for-a-wildcard"
	for _, domain := range search(m.h.Files.Text(m.resolvConf(ctx))) {
		if domain == "." {
			continue
		}
		if all, err := m.local(ctx, nothing+"."+domain+"."); err == nil && len(all) > 0 {
			return []finding.Finding{finding.Warn("OCA-1056", "The search domain "+domain+" answers for every name",
				"a name that does not exist resolves to "+all[0]+": pods get this address for names outside of the cluster",
				"remove "+domain+" from the search line of /etc/resolv.conf, or the wildcard from the domain")}
		}
	}
	return nil
}

func checkProxy(ctx context.Context, m *machine) []finding.Finding {
	n := m.h.Config.Node
	for _, proxy := range slices.Compact([]string{n.HTTPProxy, n.HTTPSProxy}) {
		u, err := url.Parse(proxy)
		if proxy == "" || err != nil || u.Host == "" {
			continue
		}
		port := cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
		if err := m.reach(ctx, net.JoinHostPort(u.Hostname(), port)); err != nil {
			return []finding.Finding{finding.New("OCA-2025", "The proxy does not answer", u.Host+": "+err.Error(), "correct --http-proxy and --https-proxy, or start the proxy")}
		}
	}
	return nil
}

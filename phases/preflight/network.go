// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
)

func networkChecks() []Check {
	return []Check{
		{Name: "Hostname", Short: "the node's name is a DNS name and resolves", Codes: []string{"OCA-1019", "OCA-1020"}, run: checkHostname},
		{Name: "Resolver", Short: "pods can use the machine's name servers", Codes: []string{"OCA-1021", "OCA-1022"}, run: checkResolver},
		{Name: "Ports", Short: "the ports of Kubernetes and the cloud are free", Codes: []string{"OCA-2001"}, run: checkPorts},
		{Name: "NodeIP", Short: "the node's address is one of the machine's", Codes: []string{"OCA-2002", "OCA-2003"}, run: checkNodeIP},
		{Name: "SameAddress", Short: "no other machine has the node's address", Codes: []string{"OCA-2026"}, run: checkSameAddress},
		{Name: "Networks", Short: "pod, service and node networks do not overlap", Codes: []string{"OCA-2004", "OCA-2005"}, run: checkNetworks},
		{Name: "Firewall", Short: "firewalld and ufw allow the cluster's traffic", Codes: []string{"OCA-2007", "OCA-2008"}, Timeout: 20 * time.Second, run: checkFirewall},
	}
}

func checkHostname(ctx context.Context, m *machine) []finding.Finding {
	name := m.h.Config.Node.Name
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return []finding.Finding{finding.New("OCA-1019", fmt.Sprintf("%q cannot be the name of a node", name),
			"it must be a DNS name: lower-case letters, digits, hyphens and dots, starting and ending with a letter or digit",
			"choose one with --node-name, or: hostnamectl set-hostname "+dnsName(name))}
	}
	addresses, err := m.resolve(ctx, name)
	remedy := fmt.Sprintf("add to /etc/hosts: %s %s", m.h.Config.Node.IP, name)
	if err != nil || len(addresses) == 0 {
		return []finding.Finding{finding.Warn("OCA-1020", fmt.Sprintf("The name %s does not resolve", name), "some programs look up their own host", remedy)}
	}
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a); err == nil && ip.IsLoopback() {
			return []finding.Finding{finding.Warn("OCA-1020", fmt.Sprintf("The name %s resolves to the loopback address %s", name, a),
				"programs that look up their own host will not be reachable from other machines", remedy)}
		}
	}
	return nil
}

var notDNS = regexp.MustCompile(`[^a-z0-9.-]+`)

func dnsName(s string) string {
	s = strings.Trim(notDNS.ReplaceAllString(strings.ToLower(s), "-"), "-.")
	if s == "" {
		return "node-1"
	}
	return s
}

// nameServers returns the name servers of a resolv.conf.
func nameServers(text string) (out []string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "nameserver" {
			out = append(out, f[1])
		}
	}
	return out
}

func checkResolver(ctx context.Context, m *machine) []finding.Finding {
	file := m.resolvConf(ctx)
	servers := nameServers(m.h.Files.Text(file))
	if len(servers) == 0 {
		add := "add a line to " + file + ": nameserver ADDRESS"
		if file != "/etc/resolv.conf" {
			add = "set DNS=ADDRESS in /etc/systemd/resolved.conf, and: systemctl restart systemd-resolved"
		}
		f := finding.New("OCA-1022", "This machine has no name server", file+" names none, and CoreDNS does not start without one",
			add+"; in a network without a DNS server, ADDRESS is that of this machine, "+m.h.Config.Node.IP)
		if _, err := m.h.Files.Stat(file); err != nil {
			f.Cause = "there is no " + file + ", and the kubelet starts no pod without it"
		} else if !m.controlPlane() || m.joined() {
			f.Severity = finding.Warning // CoreDNS runs elsewhere at first, or forwards to another server
		}
		return []finding.Finding{f}
	}
	for _, s := range servers {
		if ip, err := netip.ParseAddr(s); err == nil && ip.IsLoopback() {
			return []finding.Finding{finding.New("OCA-1021", "The machine's name server is a loopback address",
				fmt.Sprintf("%s names %s; in a pod that is the pod itself, and CoreDNS would query itself forever", file, s),
				"name a server of the network in "+file+", or run systemd-resolved")}
		}
	}
	return nil
}

func checkPorts(ctx context.Context, m *machine) []finding.Finding {
	if m.ours() && (m.initialised() || m.h.Files.Exists(kubernetes.AdminKubeconfig)) { // control-plane pods may run before the kubelet has joined
		return nil // the cluster's own programs use them
	}
	taken := listening(m.h.Files.Text("/proc/net/tcp") + m.h.Files.Text("/proc/net/tcp6"))
	var holders map[int]string
	var out []finding.Finding
	for _, p := range config.Ports(m.h.Config, m.kind == Init) {
		if !p.Listens || !slices.Contains(taken, p.First) {
			continue
		}
		if holders == nil {
			text, _ := m.output(ctx, "ss", "-Hltnp")
			holders = portHolders(text)
		}
		by := "another program"
		if h := holders[p.First]; h != "" {
			by = h
		}
		out = append(out, finding.New("OCA-2001", fmt.Sprintf("Port %d is in use", p.First), fmt.Sprintf("%s needs it, and %s listens on it", p.Of, by),
			fmt.Sprintf("ss -ltnp 'sport = :%d', and stop the program that it shows", p.First)))
	}
	return out
}

// listening returns the TCP ports with a listener, from /proc/net/tcp and tcp6.
func listening(proc string) []int {
	const listen = "0A"
	var out []int
	for line := range strings.Lines(proc) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != listen {
			continue
		}
		_, hexPort, ok := strings.Cut(f[1], ":")
		raw, err := hex.DecodeString(hexPort)
		if ok && err == nil && len(raw) == 2 {
			out = append(out, int(raw[0])<<8|int(raw[1]))
		}
	}
	return out
}

var ssUser = regexp.MustCompile(`users:\(\("([^"]+)",pid=(\d+)`)

// portHolders returns the program that uses each port, from the output of ss -Hltnp.
func portHolders(text string) map[int]string {
	out := map[int]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		user := ssUser.FindStringSubmatch(line)
		if len(f) < 4 || user == nil {
			continue
		}
		if n, err := strconv.Atoi(f[3][strings.LastIndex(f[3], ":")+1:]); err == nil {
			out[n] = fmt.Sprintf("%s (process %s)", user[1], user[2])
		}
	}
	return out
}

func checkNodeIP(_ context.Context, m *machine) []finding.Finding {
	var out []finding.Finding
	ip, err := netip.ParseAddr(m.h.Config.Node.IP)
	switch {
	case m.h.Config.Node.IP == "":
		out = append(out, finding.New("OCA-2002", "The node has no address", "no interface with a default route has one", "name it: --node-ip ADDRESS"))
	case err != nil:
		out = append(out, finding.New("OCA-2002", fmt.Sprintf("%q is not an IP address", m.h.Config.Node.IP), "--node-ip must be one", "--node-ip ADDRESS"))
	case ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast():
		out = append(out, finding.New("OCA-2002", fmt.Sprintf("%s cannot be the address of a node", ip), "other nodes cannot reach it", "name another one: --node-ip ADDRESS"))
	default:
		if f, bad := m.foreignAddress(ip); bad {
			out = append(out, f)
		}
	}
	if len(defaultRoutes(m.h.Files)) == 0 && !defaultRoute6(m.h.Files) {
		out = append(out, finding.Warn("OCA-2003", "This machine has no default route", "packets to services and to registries have nowhere to go",
			"ip route add default via GATEWAY"))
	}
	return out
}

func (m *machine) foreignAddress(ip netip.Addr) (finding.Finding, bool) {
	if len(m.h.Facts.Interfaces) == 0 {
		return finding.Finding{}, false // unknown to the kernel
	}
	if _, _, found := m.h.Facts.With(ip); found {
		return finding.Finding{}, false
	}
	var have []string
	for _, l := range m.h.Facts.Interfaces {
		for _, p := range l.Prefixes {
			if !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
				have = append(have, fmt.Sprintf("%s (%s)", p.Addr(), l.Name))
			}
		}
	}
	return finding.New("OCA-2002", fmt.Sprintf("%s is not an address of this machine", ip), "it has "+strings.Join(have, ", "), "name one of these: --node-ip ADDRESS"), true
}

// clusterLink reports whether a cluster created an interface: its addresses are in the pod network by design.
func clusterLink(name string) bool {
	made := []string{"lo", "cni", "flannel", "cali", "tunl", "kube-", "veth"}
	return slices.ContainsFunc(made, func(p string) bool { return strings.HasPrefix(name, p) })
}

// network is a network with its name for people.
type network struct {
	name   string
	prefix netip.Prefix
}

// reached returns what the machine reaches through gateways: its name servers, and networks that a route names.
func (m *machine) reached(ctx context.Context) []network {
	out := lists.Pick(nameServers(m.h.Files.Text(m.resolvConf(ctx))), func(s string) (network, bool) {
		ip, err := netip.ParseAddr(s)
		return network{"the address of the name server " + s, netip.PrefixFrom(ip, ip.BitLen())}, err == nil
	})
	return append(out, lists.Pick(m.h.Files.Routes(), func(r host.Route) (network, bool) {
		return network{fmt.Sprintf("the network %s behind gateway %s", r.To, r.Gateway), r.To}, !r.Gateway.IsUnspecified() && !clusterLink(r.Link)
	})...)
}

func checkNetworks(ctx context.Context, m *machine) []finding.Finding {
	var nets []network
	var out []finding.Finding
	if m.kind == Join && m.joined() {
		return nil // it works
	}
	for _, s := range []struct{ name, flag, value string }{
		{"the pod network", "--pod-network-cidr", m.h.Config.Cluster.PodNetworkCIDR},
		{"the service network", "--service-cidr", m.h.Config.Cluster.ServiceCIDR},
	} {
		for cidr := range strings.SplitSeq(s.value, ",") {
			p, err := netip.ParsePrefix(strings.TrimSpace(cidr))
			if s.value == "" && m.kind == Join {
				continue // unknown
			}
			if err != nil {
				out = append(out, finding.New("OCA-2005", fmt.Sprintf("%q is not a network", cidr), s.flag+" must be ADDRESS/BITS", s.flag+" 10.40.0.0/16"))
				continue
			}
			nets = append(nets, network{fmt.Sprintf("%s %s", s.name, p), p})
		}
	}
	remedy := "choose others: --pod-network-cidr, --service-cidr"
	if m.kind == Join {
		remedy = "give the interface an address of another network: those of a cluster cannot be changed"
	}
	own := len(nets)
	for _, l := range m.h.Facts.Interfaces {
		for _, p := range l.Prefixes {
			if !clusterLink(l.Name) && !p.Addr().IsLinkLocalUnicast() {
				nets = append(nets, network{fmt.Sprintf("the network %s of interface %s", p.Masked(), l.Name), p})
			}
		}
	}
	if m.kind == Init && !m.joined() { // kube-proxy drops packets to unused addresses of the service network. A wider route may lead past all of them.
		nets = append(nets, lists.Filter(m.reached(ctx), func(r network) bool {
			return slices.ContainsFunc(nets[:own], func(n network) bool { return n.prefix.Bits() <= r.prefix.Bits() && n.prefix.Contains(r.prefix.Addr()) })
		})...)
	}
	for i := range own {
		for j := i + 1; j < len(nets); j++ {
			if nets[i].prefix.Overlaps(nets[j].prefix) {
				first := strings.ToUpper(nets[i].name[:1]) + nets[i].name[1:]
				out = append(out, finding.New("OCA-2004", fmt.Sprintf("%s and %s overlap", first, nets[j].name),
					"an address could mean two things", remedy))
			}
		}
	}
	return out
}

// checkFirewall checks active rules, not units: on Ubuntu the unit of ufw is active even if ufw is not.
func checkFirewall(ctx context.Context, m *machine) []finding.Finding {
	var out []finding.Finding
	if m.h.Config.Node.Firewall == config.FirewallManual {
		if missing, _ := node.FirewallMissing(ctx, m.h, m.kind == Init); len(missing) > 0 { // the user configures a firewall that does not answer
			out = append(out, closed("OCA-2007", "firewalld", missing))
		}
	}
	status, _ := m.output(ctx, "ufw", "status")
	if missing := node.UFWMissing(m.h.Config, m.kind == Init, status); len(missing) > 0 {
		out = append(out, closed("OCA-2008", "ufw", missing))
	}
	return out
}

func closed(code, by string, commands []string) finding.Finding {
	return finding.New(code, by+" would drop the cluster's traffic", by+" is active and lacks rules for it", strings.Join(commands, "\n"))
}

// MoreFirewall returns findings about rules that a control-plane node needs and did not need with its former configuration, as far as ocadm does not make them.
func MoreFirewall(ctx context.Context, h *host.Host, former *config.Config) []finding.Finding {
	was := *h
	was.Config = former
	var out []finding.Finding
	missed := slices.Concat(lists.Map(checkFirewall(ctx, &machine{h: &was, kind: Init}), func(f finding.Finding) []string { return strings.Split(f.Remedy, "\n") })...)
	for _, f := range checkFirewall(ctx, &machine{h: h, kind: Init}) {
		if missing := without(strings.Split(f.Remedy, "\n"), missed); len(missing) > 0 {
			f.Remedy = strings.Join(missing, "\n")
			out = append(out, f)
		}
	}
	return out
}

// checkSameAddress uses ARP. A gateway that answers for every address, as in some public clouds, is not a second machine: hence only a warning.
func checkSameAddress(ctx context.Context, m *machine) []finding.Finding {
	link, found := m.link()
	ip, err := netip.ParseAddr(m.h.Config.Node.IP)
	if !found || err != nil || !ip.Is4() {
		return nil
	}
	others, err := m.holders(ctx, link.Name, ip.String())
	if err != nil || len(others[ip.String()]) == 0 {
		return nil // unknown without permission, or on a link without ARP
	}
	return []finding.Finding{finding.Warn("OCA-2026", "Another machine has the address "+ip.String()+" of this node",
		"on "+link.Name+", MAC address "+strings.Join(others[ip.String()], ", ")+" answers for it",
		"give one of the two another address; in a network whose gateway answers for every address, ignore this")}
}

// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	osexec "os/exec"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// CodeCannotLook is the finding for a missing or failing program that shows what is left.
const CodeCannotLook = "OCA-9003"

// bridge is the bridge of the CNI plugins to which the links of pods are attached.
const bridge = "cni0"

// Network is the network state of the node's pods on this machine.
type Network struct {
	namespaces, links, tables []string
	// ports are the links of pods on the bridge that the plugins have not removed. The kernel removes them some time after their name spaces.
	ports     []string
	hostports []string // rules of pods in a shared table, in the syntax of nft
	rules     []packetRules
}

// packetRules is what to remove from one of the kernel's two packet filters.
type packetRules struct {
	cleanup
	program string // iptables-nft, ip6tables-legacy, …
}

// List returns everything in it, one line each.
func (n Network) List() []string {
	var out []string
	add := func(prefix string, names []string) { out = append(out, workflow.Lines(prefix, names)...) }
	add("link ", n.ports)
	add("link ", n.links)
	add("network name space ", n.namespaces)
	add("nftables table ", n.tables)
	add("nftables rule ", n.hostports)
	for _, r := range n.rules {
		add(r.program+" ", r.what)
		add(r.program+" ", r.stuck)
	}
	return out
}

// Summary is like List, with one line for all rules of a packet filter: kube-proxy creates thousands.
func (n Network) Summary() []string {
	few := n
	few.rules, few.ports = nil, nil
	out := few.List()
	if len(n.ports) > 0 {
		out = append(out, fmt.Sprintf("%d links of pods on %s", len(n.ports), bridge))
	}
	for _, r := range n.rules {
		if len(r.what) > 0 {
			out = append(out, fmt.Sprintf("%d rules and chains in %s", len(r.what), r.program))
		}
		out = append(out, workflow.Lines(r.program+" ", r.stuck)...)
	}
	return out
}

// NetworkOf finds the network state of this node's pods. If it cannot look somewhere, the error is a list of findings that name the commands, and the
// result contains what it found nevertheless.
func NetworkOf(ctx context.Context, h *host.Host) (Network, error) {
	var n Network
	if !NodeOf(h).Made {
		return n, nil
	}
	var problems finding.List
	keep := func(err error) error {
		problems = append(problems, finding.Of(err)...)
		if len(finding.Of(err)) > 0 {
			return nil
		}
		return err
	}
	n.namespaces = podNamespaces(h)
	for _, l := range presentLinks(h) {
		ours, err := ownLink(h, l)
		if err := keep(err); err != nil {
			return n, err
		}
		if ours {
			n.links = append(n.links, l)
		}
	}
	shared := otherCNI(h)
	if slices.Contains(n.links, bridge) && !shared {
		n.ports = bridgePorts(h)
	}
	if err := keep(n.lookForTables(ctx, h, shared)); err != nil {
		return n, err
	}
	filters, unseen := packetFilters(ctx, h)
	problems = append(problems, unseen...)
	for _, f := range filters {
		if c := cleanRules(f.save, shared); len(c.what)+len(c.stuck) > 0 {
			n.rules = append(n.rules, packetRules{c, f.program})
		}
	}
	return n, problems.Err()
}

// lookForTables finds the nftables tables of the node. shared means that another program uses CNI here.
func (n *Network) lookForTables(ctx context.Context, h *host.Host, shared bool) error {
	res, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: []string{"list", "tables"}})
	if err != nil {
		return cannotLook("packet rules", "nft list tables", h.Facts.OS.Install("nft"), err)
	}
	pods := []string{"ip kube-proxy", "ip6 kube-proxy", "ip flannel-ipv4", "ip6 flannel-ipv6"}
	for line := range strings.Lines(res.Stdout) {
		t, ok := strings.CutPrefix(strings.TrimSpace(line), "table ")
		ofPortmap := strings.HasSuffix(t, " "+hostportTable)
		switch {
		case !ok:
		case slices.Contains(pods, t), ofPortmap && !shared:
			n.tables = append(n.tables, t)
		case ofPortmap:
			rules, err := hostportRules(ctx, h, t)
			if err != nil {
				return err
			}
			n.hostports = append(n.hostports, rules...)
		}
	}
	return nil
}

func cannotLook(what, command, remedy string, cause error) finding.Finding {
	return finding.Finding{Code: CodeCannotLook, Severity: finding.Error, What: fmt.Sprintf("Could not check what is left of the node: %s", what),
		Cause: fmt.Sprintf("%s: %v", command, cause), Remedy: remedy + "; then: ocadm reset", Err: cause}
}

// packetFilter is the output of one program about the kernel's packet rules.
type packetFilter struct{ program, save string }

// packetFilters returns the rules of both back ends of iptables. Distributions ship a program for each, or a single one named iptables for either.
// The legacy back end is queried only if the kernel has such tables.
func packetFilters(ctx context.Context, h *host.Host) (seen []packetFilter, unseen finding.List) {
	for _, f := range []struct{ program, legacyTables string }{
		{"iptables", "/proc/net/ip_tables_names"}, {"ip6tables", "/proc/net/ip6_tables_names"},
	} {
		if f.program == "ip6tables" && !h.Files.Exists("/proc/net/if_inet6") {
			continue // no IPv6 in this kernel
		}
		legacy, err := h.Files.ReadFile(f.legacyTables)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			unseen = append(unseen, cannotLook("packet rules", "cat "+f.legacyTables, "run as root", err))
		}
		for _, backend := range []string{"nft", "legacy"} {
			if backend == "legacy" && strings.TrimSpace(string(legacy)) == "" {
				continue
			}
			program, save, err := rulesOf(ctx, h, f.program, backend)
			if err != nil {
				unseen = append(unseen, cannotLook("packet rules", program+"-save", h.Facts.OS.Install("iptables"), err))
				continue
			}
			seen = append(seen, packetFilter{program, save})
		}
	}
	return seen, unseen
}

// rulesOf runs the save program of one back end, or the one without a back end in its name if it serves this one.
func rulesOf(ctx context.Context, h *host.Host, program, backend string) (name, save string, err error) {
	name = program + "-" + backend
	res, err := h.Exec.Run(ctx, exec.Command{Path: name + "-save"})
	if !errors.Is(err, osexec.ErrNotFound) {
		return name, res.Stdout, err
	}
	version, verr := h.Exec.Run(ctx, exec.Command{Path: program, Args: []string{"--version"}})
	if verr != nil || strings.Contains(version.Stdout, "nf_tables") != (backend == "nft") {
		return name, "", err
	}
	res, err = h.Exec.Run(ctx, exec.Command{Path: program + "-save"})
	return program, res.Stdout, err
}

// presentLinks returns the existing network links that flannel, kube-proxy and the CNI plugins create.
func presentLinks(h *host.Host) []string {
	return slices.DeleteFunc([]string{bridge, "flannel.1", "flannel-v6.1", "kube-ipvs0", "nodelocaldns"}, func(l string) bool { return !h.Files.Exists("/sys/class/net/" + l) })
}

// bridgePorts returns the links attached to the bridge.
func bridgePorts(h *host.Host) []string {
	return lists.Map(h.Files.Glob("/sys/class/net/"+bridge+"/brif/*"), path.Base)
}

// ownLink reports whether a link with a pod network's name belongs to the node: it did not exist before, and its addresses are in the network that
// flannel serves, if that is known. cni0 is the default name of every bridge of the CNI plugins.
func ownLink(h *host.Host, name string) (bool, error) {
	if h.Ledger.Has(host.KindLink, name) {
		return false, nil
	}
	pods, ok := podNetwork(h)
	if !ok || h.Files.Root != "" || name != bridge && name != "flannel.1" {
		return true, nil
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return false, cannotLook("links", "ip link show "+name, "check the output of ip", err)
	}
	addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
	if err != nil {
		return false, cannotLook("links", "ip address show "+name, "check the output of ip", err)
	}
	return !slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		ip, ok := netip.AddrFromSlice(a.IP.To4())
		return ok && !pods.Contains(ip)
	}), nil
}

// podNetwork returns the pod network that flannel has recorded.
func podNetwork(h *host.Host) (netip.Prefix, bool) {
	raw, err := h.Files.ReadFile(flannelSubnet)
	if err != nil {
		return netip.Prefix{}, false
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "FLANNEL_NETWORK="); ok {
			p, err := netip.ParsePrefix(v)
			return p, err == nil
		}
	}
	return netip.Prefix{}, false
}

// podNamespace matches containerd's names for the network name spaces of pods. Source: containerd pkg/netns/netns_linux.go.
var podNamespace = regexp.MustCompile(`^cni-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// podNamespaces returns the network name spaces that containerd made for pods, without those of other containers.
func podNamespaces(h *host.Host) []string {
	_, others := caches(h)
	var out []string
	for _, f := range Content(h, "/run/netns") {
		used := false
		for _, c := range others {
			for _, i := range c.Result.Interfaces {
				used = used || path.Base(i.Sandbox) == path.Base(f)
			}
		}
		if podNamespace.MatchString(path.Base(f)) && !used {
			out = append(out, f)
		}
	}
	return out
}

// RemoveNetwork removes everything that NetworkOf finds: name spaces, links, tables, and single rules and chains. It rewrites no other rule. It
// continues after an error, and finally reports what it could not look at.
func RemoveNetwork(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	n, unseen := NetworkOf(ctx, h)
	var errs []error
	try := func(err error, format string, args ...any) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		r.Changed(format, args...)
	}
	for _, ns := range n.namespaces {
		try(removeNamespace(h, ns), "removed the network name space %s", path.Base(ns))
	}
	for _, l := range slices.Concat(n.ports, n.links) {
		try(removeLink(h, l), "removed the link %s", l)
	}
	for _, t := range n.tables {
		_, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: append([]string{"delete", "table"}, strings.Fields(t)...)})
		try(err, "removed the nftables table %s", t)
	}
	for _, rule := range n.hostports {
		_, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: append([]string{"delete", "rule"}, strings.Fields(rule)...)})
		try(err, "removed the nftables rule %s", rule)
	}
	for _, p := range n.rules {
		if p.script == "" {
			continue
		}
		_, err := h.Exec.Run(ctx, exec.Command{Path: p.program + "-restore", Args: []string{"--noflush", "--wait=5"}, Stdin: strings.NewReader(p.script)})
		try(err, "removed %d rules and chains from %s", len(p.what), p.program)
	}
	return errors.Join(append(errs, unseen)...)
}

func removeLink(h *host.Host, name string) error {
	if h.Files.DryRun || h.Files.Root != "" {
		return fmt.Errorf("removing the link %s: %w", name, host.ErrDryRun)
	}
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err == nil || errors.As(err, &netlink.LinkNotFoundError{}) || errors.Is(err, unix.ENODEV) { // the kernel removes a pod's link with its name space
		return nil
	}
	return fmt.Errorf("removing the link %s: %w", name, err)
}

func removeNamespace(h *host.Host, file string) error {
	mounts, err := MountPoints(h, file)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if err := Unmount(h, m); err != nil {
			return err
		}
	}
	if err := h.Files.Remove(file); err != nil {
		return fmt.Errorf("removing the network name space %s: %w", file, err)
	}
	return nil
}

// RemoveCNIState removes what CNIState lists.
func RemoveCNIState(h *host.Host, r workflow.Reporter) error {
	n := 0
	for _, f := range CNIState(h) {
		if err := Remove(h, f); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		r.Changed("removed the pod network's configuration and addresses (%d)", n)
	}
	return nil
}

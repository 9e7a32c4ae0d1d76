// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

// podLinks are the network links that flannel and the CNI plugins make in the name space of the machine; veths on cni0 go with it.
func podLinks() []string {
	return []string{"cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0", "nodelocaldns"}
}

// podTables are the nftables tables of kube-proxy and flannel.
func podTables() []string {
	return []string{"ip kube-proxy", "ip6 kube-proxy", "ip flannel-ipv4", "ip6 flannel-ipv6"}
}

// podChains mark the lines of iptables-save that belong to kube-proxy, flannel and the CNI plugins.
func podChains() []string {
	return []string{"KUBE-", "FLANNEL-", "CNI-", "flanneld masq", "flanneld forward"}
}

// saves are the programs that print packet rules, each with the one that takes them back.
func saves() [][2]string {
	return [][2]string{
		{"iptables-nft-save", "iptables-nft-restore"}, {"ip6tables-nft-save", "ip6tables-nft-restore"},
		{"iptables-legacy-save", "iptables-legacy-restore"}, {"ip6tables-legacy-save", "ip6tables-legacy-restore"},
	}
}

// podNetwork lists what is there of the pods' network.
func podNetwork(ctx context.Context, h *host.Host) []string {
	var out []string
	for _, l := range links(h) {
		out = append(out, "link "+l)
	}
	for _, n := range podNamespaces(h) {
		out = append(out, "network name space "+path.Base(n))
	}
	for _, t := range tables(ctx, h) {
		out = append(out, "nftables table "+t)
	}
	for _, s := range saves() {
		if _, dirty := filtered(ctx, h, s[0]); dirty {
			out = append(out, "rules in "+strings.TrimSuffix(s[0], "-save"))
		}
	}
	return out
}

func planPodNetwork(ctx context.Context, h *host.Host) ([]string, error) {
	out := podNetwork(ctx, h)
	for i := range out {
		out[i] = "remove " + out[i]
	}
	return out, nil
}

// links are those of podLinks that are there.
func links(h *host.Host) []string {
	return slices.DeleteFunc(podLinks(), func(l string) bool { return !h.Files.Exists("/sys/class/net/" + l) })
}

// podNamespaces are the network name spaces that the runtime made for pods.
func podNamespaces(h *host.Host) []string {
	found, err := h.Files.Glob("/run/netns/cni-*")
	if err != nil {
		return nil
	}
	return found
}

func tables(ctx context.Context, h *host.Host) []string {
	res, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: []string{"list", "tables"}})
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(res.Stdout) {
		if t, ok := strings.CutPrefix(strings.TrimSpace(line), "table "); ok && slices.Contains(podTables(), t) {
			out = append(out, t)
		}
	}
	return out
}

// filtered prints the packet rules without those of pods, and tells whether there were any.
func filtered(ctx context.Context, h *host.Host, save string) (rules string, dirty bool) {
	res, err := h.Exec.Run(ctx, exec.Command{Path: save})
	if err != nil {
		return "", false
	}
	var kept strings.Builder
	for line := range strings.Lines(res.Stdout) {
		if slices.ContainsFunc(podChains(), func(c string) bool { return strings.Contains(line, c) }) {
			dirty = true
			continue
		}
		kept.WriteString(line)
	}
	return kept.String(), dirty
}

func removePodNetwork(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	var errs []error
	for _, n := range podNamespaces(h) {
		if err := removeNamespace(h, n); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Changed("removed the network name space %s", path.Base(n))
	}
	for _, l := range links(h) {
		if err := removeLink(h, l); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Changed("removed the link %s", l)
	}
	for _, t := range tables(ctx, h) {
		if _, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: append([]string{"delete", "table"}, strings.Fields(t)...)}); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Changed("removed the nftables table %s", t)
	}
	for _, s := range saves() {
		rules, dirty := filtered(ctx, h, s[0])
		if !dirty {
			continue
		}
		if _, err := h.Exec.Run(ctx, exec.Command{Path: s[1], Stdin: strings.NewReader(rules)}); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Changed("removed the rules of pods from %s", strings.TrimSuffix(s[0], "-save"))
	}
	return errors.Join(errs...)
}

func removeLink(h *host.Host, name string) error {
	if h.Files.DryRun || h.Files.Root != "" {
		return fmt.Errorf("removing the link %s: %w", name, host.ErrDryRun)
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("removing the link %s: %w", name, err)
	}
	if err := netlink.LinkDel(l); err != nil {
		return fmt.Errorf("removing the link %s: %w", name, err)
	}
	return nil
}

func removeNamespace(h *host.Host, file string) error {
	if len(mountPoints(h, file)) > 0 {
		if err := unmount(h, file); err != nil {
			return err
		}
	}
	if err := h.Files.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the network name space %s: %w", file, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

// networkResiduePhase removes the packet filter rules and links that the kubelet, kube-proxy and flannel made. Everybody else's rules
// stay: flushing tables has cut people off from their machines.
func networkResiduePhase() host.Phase {
	return host.Phase{
		Name: "network-residue", Short: "Remove the cluster's packet filter rules and links",
		Check: func(ctx context.Context, h *host.Host) (bool, error) { return len(networkResidue(ctx, h)) == 0, nil },
		Plan: func(ctx context.Context, h *host.Host) ([]string, error) {
			var lines []string
			for _, r := range networkResidue(ctx, h) {
				lines = append(lines, "remove "+r)
			}
			return lines, nil
		},
		Run: removeNetworkResidue,
		Verify: func(ctx context.Context, h *host.Host) error {
			left := networkResidue(ctx, h)
			if len(left) == 0 {
				return nil
			}
			return finding.Finding{Code: "OCA-9002", Severity: finding.Error, What: "The cluster left network state on this machine",
				Cause: "it could not be removed", Remedy: "restart the machine, then: ocadm reset", Evidence: left}
		},
	}
}

func removeNetworkResidue(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	for _, what := range networkResidue(ctx, h) {
		if err := removeNetwork(ctx, h, what); err != nil {
			return err
		}
		r.Changed("removed %s", what)
	}
	return nil
}

const (
	rulesOf = "rules of "  // + iptables or ip6tables
	tableOf = "nft table " // + family and name
	linkOf  = "link "      // + name
)

func ourLinks() []string { return []string{"flannel.1", "cni0", "kube-ipvs0"} }

func ourTables() []string { return []string{"ip kube-proxy", "ip6 kube-proxy"} }

func networkResidue(ctx context.Context, h *host.Host) []string {
	var out []string
	for _, t := range []string{"iptables", "ip6tables"} {
		if res, err := h.Exec.Run(ctx, exec.Command{Path: t + "-save"}); err == nil && withoutCluster(res.Stdout) != res.Stdout {
			out = append(out, rulesOf+t)
		}
	}
	if res, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: []string{"list", "tables"}}); err == nil {
		for _, t := range ourTables() {
			if strings.Contains(res.Stdout, "table "+t+"\n") {
				out = append(out, tableOf+t)
			}
		}
	}
	for _, l := range ourLinks() {
		if h.Files.Exists("/sys/class/net/" + l) {
			out = append(out, linkOf+l)
		}
	}
	return out
}

func removeNetwork(ctx context.Context, h *host.Host, what string) error {
	var err error
	if t, ok := strings.CutPrefix(what, rulesOf); ok {
		var res exec.Result
		if res, err = h.Exec.Run(ctx, exec.Command{Path: t + "-save"}); err == nil {
			_, err = h.Exec.Run(ctx, exec.Command{Path: t + "-restore", Stdin: strings.NewReader(withoutCluster(res.Stdout))})
		}
	} else if t, ok := strings.CutPrefix(what, tableOf); ok {
		_, err = h.Exec.Run(ctx, exec.Command{Path: "nft", Args: append([]string{"delete", "table"}, strings.Fields(t)...)})
	} else if l, ok := strings.CutPrefix(what, linkOf); ok {
		_, err = h.Exec.Run(ctx, exec.Command{Path: "ip", Args: []string{"link", "delete", l}})
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", what, err)
	}
	return nil
}

// withoutCluster is what iptables-save printed without the chains of the kubelet, kube-proxy, flannel and the CNI plugins, and
// without every rule that is in one of them or jumps to one.
func withoutCluster(save string) string {
	var out strings.Builder
	for line := range strings.Lines(save) {
		if !ofCluster(line) {
			out.WriteString(line)
		}
	}
	return out.String()
}

func ofCluster(line string) bool {
	for _, prefix := range []string{"KUBE-", "FLANNEL-", "CNI-"} {
		if strings.HasPrefix(line, ":"+prefix) || strings.HasPrefix(line, "-A "+prefix) || strings.Contains(line, " -j "+prefix) {
			return true
		}
	}
	return strings.HasPrefix(line, "-A ") && strings.Contains(line, "--comment \"flanneld ")
}

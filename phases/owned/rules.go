// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kubeChains returns the chains of the kubelet and kube-proxy; a name that ends with "-" is a prefix. Source: kubernetes
// pkg/proxy/{iptables,ipvs}/proxier.go, pkg/kubelet/kubelet_network_linux.go.
func kubeChains() []string {
	return []string{
		"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-FORWARD",
		"KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-FIREWALL", "KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-",
		"KUBE-FW-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER",
		"KUBE-SOURCE-RANGES-FIREWALL",
	}
}

// flannelChains returns flannel's chains. Source: flannel pkg/trafficmngr/iptables.
func flannelChains() []string { return []string{"FLANNEL-POSTRTG", "FLANNEL-FWD"} }

// flannelComments returns the comments that mark flannel's rules in the kernel's own chains.
func flannelComments() []string {
	return []string{`--comment "flanneld masq"`, `--comment "flanneld forward"`}
}

// portmapChains returns the chains shared by all CNI networks' containers with published ports. Source: containernetworking/plugins
// plugins/meta/portmap/portmap_iptables.go.
func portmapChains() []string {
	return []string{"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"}
}

func named(chain string, list []string) bool {
	return slices.ContainsFunc(list, func(n string) bool {
		return chain == n || strings.HasSuffix(n, "-") && strings.HasPrefix(chain, n)
	})
}

// ofNetwork matches the rules that CNI plugins create for a container of the pod network.
var ofNetwork = regexp.MustCompile(`--comment "(dnat )?name: \\"` + regexp.QuoteMeta(network) + `\\" id: \\"[^"\\]+\\"`)

var (
	jump       = regexp.MustCompile(` (?:-j|-g) (\S+)`)
	chainsLine = regexp.MustCompile(`^:(\S+) (\S+)`)
)

// rule is one line of iptables-save that adds a rule.
type rule struct{ chain, target, line string }

// table is one table of iptables-save.
type table struct {
	name    string
	chains  []string
	builtin map[string]bool
	rules   []rule
}

// parseRules parses the output of iptables-save.
func parseRules(save string) []table {
	var out []table
	for line := range strings.Lines(save) {
		line = strings.TrimRight(line, "\r\n")
		if name, ok := strings.CutPrefix(line, "*"); ok {
			out = append(out, table{name: name, builtin: map[string]bool{}})
			continue
		}
		if len(out) == 0 {
			continue
		}
		t := &out[len(out)-1]
		if m := chainsLine.FindStringSubmatch(line); m != nil {
			t.chains = append(t.chains, m[1])
			t.builtin[m[1]] = m[2] != "-"
		}
		if rest, ok := strings.CutPrefix(line, "-A "); ok {
			r := rule{line: line}
			r.chain, _, _ = strings.Cut(rest, " ")
			if m := jump.FindAllStringSubmatch(quoted.ReplaceAllString(line, `""`), -1); len(m) > 0 {
				r.target = m[len(m)-1][1]
			}
			t.rules = append(t.rules, r)
		}
	}
	return out
}

// quoted matches the quoted parts of a rule: a comment may contain anything, including " -j CHAIN".
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// cleanup deletes a node's rules and chains, and nothing else.
type cleanup struct {
	// script is the standard input of iptables-restore --noflush: deletions of single rules and chains. It is empty if there are none.
	script string
	// what describes the deleted chains and rules for people.
	what []string
	// stuck lists chains of the node that another program's rule uses.
	stuck []string
}

// cleanRules decides, from the output of iptables-save, what belongs to the node. shared means that another program uses CNI here.
func cleanRules(save string, shared bool) cleanup {
	var out cleanup
	var script strings.Builder
	tables := parseRules(save)
	for _, t := range tables {
		own := t.owned(shared)
		gone, needed := t.split(own)
		for len(needed) > 0 { // a chain that stays keeps those it jumps to
			for _, c := range needed {
				out.stuck = append(out.stuck, fmt.Sprintf("chain %s of table %s, which is used by a rule of another program", c, t.name))
				delete(own, c)
			}
			gone, needed = t.split(own)
		}
		chains := slices.DeleteFunc(slices.Clone(t.chains), func(c string) bool { return !own[c] })
		if len(chains) == 0 && len(gone) == 0 {
			continue
		}
		fmt.Fprintf(&script, "*%s\n", t.name)
		for _, r := range gone {
			script.WriteString("-D" + strings.TrimPrefix(r.line, "-A") + "\n")
			out.what = append(out.what, fmt.Sprintf("rule of %s/%s to %s", t.name, r.chain, r.target))
		}
		for _, op := range []string{"-F", "-X"} {
			for _, c := range chains {
				fmt.Fprintf(&script, "%s %s\n", op, c)
			}
		}
		for _, c := range chains {
			out.what = append(out.what, fmt.Sprintf("chain %s/%s", t.name, c))
		}
		script.WriteString("COMMIT\n")
	}
	out.script = script.String()
	return out
}

// owned returns the chains of a table that belong to the node.
func (t table) owned(shared bool) map[string]bool {
	own := map[string]bool{}
	foreign := shared
	for _, r := range t.rules {
		if ofNetwork.MatchString(r.line) && strings.HasPrefix(r.target, "CNI-") && !named(r.target, portmapChains()) {
			own[r.target] = true
		}
	}
	for _, c := range t.chains {
		switch {
		case t.builtin[c]:
			delete(own, c)
		case named(c, kubeChains()), named(c, flannelChains()):
			own[c] = true
		case strings.HasPrefix(c, "CNI-") && !own[c] && !named(c, portmapChains()):
			foreign = true
		}
	}
	for _, r := range t.rules {
		foreign = foreign || named(r.chain, portmapChains()[:1]) && !ofNetwork.MatchString(r.line)
	}
	for _, c := range t.chains {
		if !foreign && named(c, portmapChains()) {
			own[c] = true
		}
	}
	return own
}

// split returns the rules to delete from chains that stay, and the chains of own that a remaining rule needs.
func (t table) split(own map[string]bool) (gone []rule, needed []string) {
	for _, r := range t.rules {
		mine := ofNetwork.MatchString(r.line) || slices.ContainsFunc(flannelComments(), func(c string) bool { return strings.Contains(r.line, c) })
		switch {
		case own[r.chain]:
		case mine, own[r.target] && t.builtin[r.chain], own[r.target] && named(r.chain, portmapChains()):
			gone = append(gone, r)
		case own[r.target] && !slices.Contains(needed, r.target):
			needed = append(needed, r.target)
		}
	}
	return gone, needed
}

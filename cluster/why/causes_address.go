// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/lists"
)

func addressCauses() []Cause {
	return []Cause{
		{ID: "virtual-address-nowhere", Code: "OCA-4180", Layer: ControlPlane, Title: "No node has the virtual address",
			What: "No node has the virtual address ${address}", Why: "the API server of ${node} is ready, so keepalived should hold the address there: ${why}",
			Next: "on ${node}: ls /etc/kubernetes/manifests/ocadm-vip.yaml; pgrep -a keepalived; tail -n 30 /var/log/pods/kube-system_ocadm-vip-*/*/*.log",
			When: (*facts).addressNowhere},
		{ID: "virtual-address-twice", Code: "OCA-4181", Layer: ControlPlane, Title: "Several nodes have the virtual address",
			What: "Several nodes have the virtual address ${address}", Why: "they do not hear each other: a firewall between them drops VRRP (IP protocol 112)",
			Next: "on each control-plane node: firewall-cmd --add-protocol=vrrp --permanent && firewall-cmd --reload, or ufw allow proto vrrp from any to any; then ocadm ha status",
			When: (*facts).addressTwice},
		{ID: "virtual-address-foreign", Code: "OCA-4182", Layer: ControlPlane, Title: "Another machine has the virtual address",
			What: "A machine that is not a control-plane node has the virtual address ${address}", Why: "it was given the same address; the machine that answers has the MAC address ${mac}",
			Next: "give the machine with the MAC address ${mac} another address; or move the virtual one: ocadm move --virtual-address ADDRESS",
			When: (*facts).addressForeign},
		{ID: "endpoint-silent", Code: "OCA-4139", Layer: Symptom, On: string(controlPlane), Title: "The endpoint of the cluster does not answer",
			Why:  "the API server of this node is ready, so the load balancer does not forward to it, or nothing has the virtual address",
			Next: "ocadm ha status; curl -k https://ENDPOINT/readyz, and the logs of your load balancer",
			When: func(f *facts) []Hit {
				if f.Silent == "" {
					return nil
				}
				return []Hit{{On: controlPlane, Evidence: []string{shorten(f.Silent)}}}
			}},
	}
}

// seen calls look for each control-plane node that could find out who has the virtual address.
func (f *facts) seen(look func(Machine, VirtualAddress) []string, values func(Machine, VirtualAddress) map[string]string) []Hit {
	var out []Hit
	for _, m := range f.Machines {
		v := m.VirtualAddress
		if v == nil || v.Unseen != "" {
			continue
		}
		if evidence := look(m, *v); len(evidence) > 0 {
			all := map[string]string{"address": v.Address, "node": m.Node}
			maps.Copy(all, values(m, *v))
			out = append(out, Hit{On: controlPlane, Evidence: evidence, Values: all})
		}
	}
	return out
}

// addressNowhere requires a ready API server: without one, keepalived assigns the address to no node, and something else is the cause.
func (f *facts) addressNowhere() []Hit {
	return f.seen(func(m Machine, v VirtualAddress) []string {
		if v.Here || len(v.Others) > 0 || m.APIServer != Ready {
			return nil
		}
		return []string{m.Node + " does not have " + v.Address + ", and no machine answers there"}
	}, func(_ Machine, v VirtualAddress) map[string]string {
		why := "keepalived does not run: " + v.Keepalived
		switch v.Keepalived {
		case Ready:
			why = "keepalived runs; its log shows why it does not hold the address"
		case "":
			why = "it is unknown whether keepalived runs"
		}
		return map[string]string{"why": why}
	})
}

// addressTwice relies on the network, or on the logs of keepalived if no node could query the network.
func (f *facts) addressTwice() []Hit {
	none := func(Machine, VirtualAddress) map[string]string { return nil }
	out := f.seen(func(m Machine, v VirtualAddress) []string {
		var on []string
		if v.Here {
			on = append(on, m.Node+" has "+v.Address)
		}
		on = append(on, lists.Pick(v.Others, func(c Claimant) (string, bool) {
			return fmt.Sprintf("the control-plane node %s (MAC address %s) answers for %s", c.Peer, c.MAC, v.Address), c.Peer != ""
		})...)
		if len(on) < 2 {
			return nil
		}
		return on
	}, none)
	if len(out) > 0 {
		return out
	}
	masters := f.masters()
	for _, instance := range slices.Sorted(maps.Keys(masters)) {
		if nodes := masters[instance]; len(nodes) > 1 {
			slices.Sort(nodes)
			out = append(out, Hit{On: controlPlane, Values: map[string]string{"address": "of the control plane"},
				Evidence: []string{"keepalived holds it on " + strings.Join(nodes, " and ") + ", according to its logs"}})
		}
	}
	return out
}

func (f *facts) addressForeign() []Hit {
	return f.seen(func(_ Machine, v VirtualAddress) []string {
		if mac := foreign(v); mac != "" {
			return []string{"the MAC address " + mac + " belongs to no control-plane node"}
		}
		return nil
	}, func(_ Machine, v VirtualAddress) map[string]string { return map[string]string{"mac": foreign(v)} })
}

// foreign lists the MAC addresses of machines other than control-plane nodes that answer for the virtual address.
func foreign(v VirtualAddress) string {
	out := lists.Pick(v.Others, func(c Claimant) (string, bool) { return c.MAC, c.Peer == "" })
	return strings.Join(out, ", ")
}

// OfKeepalived reports whether a pod runs keepalived, whose log shows who has the virtual address.
func OfKeepalived(p *corev1.Pod) bool {
	return p.Namespace == "kube-system" && p.Labels["app"] == "ocadm-vip"
}

// entered matches keepalived's log line for a state change of an instance.
var entered = regexp.MustCompile(`\((\S+)\) Entering (MASTER|BACKUP|FAULT) STATE`)

// masters returns the nodes on which an instance of keepalived holds its address, by the last state in its log. It skips pods that are not running
// and nodes that are not Ready, whose logs may be outdated.
func (f *facts) masters() map[string][]string {
	out := map[string][]string{}
	for i := range f.Pods {
		p := &f.Pods[i]
		if !OfKeepalived(p) || f.unwell(p) || f.nodeUnwell(p.Spec.NodeName) {
			continue
		}
		last := map[string]string{}
		for _, l := range f.Logs {
			if l.Namespace != p.Namespace || l.Pod != p.Name || l.Container != "keepalived" || l.Previous {
				continue
			}
			for _, line := range l.Lines {
				if m := entered.FindStringSubmatch(line); m != nil {
					last[m[1]] = m[2]
				}
			}
		}
		for instance, state := range last {
			if state == "MASTER" {
				out[instance] = append(out[instance], p.Spec.NodeName)
			}
		}
	}
	return out
}

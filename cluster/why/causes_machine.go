// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// machineCauses returns the causes found by inspecting a machine from within.
func machineCauses() []Cause {
	return []Cause{
		{ID: "control-plane-stopped", Code: "OCA-4309", Layer: ControlPlane, Title: "A command of ocadm has stopped the control plane",
			What: "The control plane of ${node} is stopped", Why: "${why}", Next: "on ${node}: ${next}",
			When: (*facts).controlPlaneStopped},
		{ID: "node-address", Code: "OCA-3111", Layer: Node, Title: "A node does not have its address", What: "Node ${node} does not have its address ${address}",
			Why:  "the machine got another one, for example from DHCP; etcd, the API server and the kubelet listen on the former one",
			Next: "${next}",
			When: (*facts).addressGone},
		{ID: "etcd-snapshots-old", Code: "OCA-4310", Layer: Setting, Warning: true, Title: "The last snapshot of etcd is old", What: "${last} on ${node}",
			Why: "${why}", Next: "on ${node}: ocadm etcd snapshot; df -h /var/lib/ocadm/etcd; tail -n 20 /var/log/pods/kube-system_ocadm-etcd-*/*/*.log",
			When: (*facts).oldSnapshots},
	}
}

func (f *facts) controlPlaneStopped() []Hit {
	var out []Hit
	for _, m := range f.Machines {
		if len(m.Stopped) == 0 {
			continue
		}
		why := "ocadm moved the manifests away, but it is unknown which command did"
		next := "ocadm etcd status; if no ocadm is running: mv /etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/*.yaml /etc/kubernetes/manifests/"
		if u := m.Unfinished; u != nil {
			at := u.Last.UTC().Format(time.RFC3339)
			why, next = fmt.Sprintf("%q stopped it and was interrupted at %s", u.Command, at), u.Command
			if u.Back != "" {
				next += "; or undo it: " + u.Back
			}
			if u.AtWork > 0 {
				why, next = fmt.Sprintf("%q stopped it and is still running; its last step began at %s", u.Command, at), fmt.Sprintf("wait for it: ps -fp %d", u.AtWork)
			}
		}
		out = append(out, Hit{On: nodeSubject(m.Node), Values: map[string]string{"node": m.Node, "why": why, "next": next},
			Evidence: []string{"stopped: " + strings.Join(m.Stopped, ", ")}})
	}
	return out
}

// notHere matches errors of programs about an address that the machine does not have.
var notHere = regexp.MustCompile(`bind: cannot assign requested address|node IP: .* not found in the host's network interfaces`)

func (f *facts) addressGone() []Hit {
	var out []Hit
	for _, m := range f.Machines {
		if m.Address == "" || len(m.Addresses) == 0 || slices.Contains(m.Addresses, m.Address) {
			continue
		}
		evidence := []string{"its addresses are " + strings.Join(m.Addresses, ", ")}
		for _, line := range slices.Concat(m.StaticPods["etcd"], m.Journals["kubelet"]) {
			if notHere.MatchString(line) {
				evidence = append(evidence, shorten(line))
				break
			}
		}
		next := "give " + m.Node + " the address " + m.Address + " again, with a fixed lease or none"
		if m.Uplink != "" { // otherwise the addresses that are left may be those of bridges of pods or containers
			next += "; or switch to the new one, on " + m.Node + ": ocadm move " + m.Uplink
		}
		out = append(out, Hit{On: nodeSubject(m.Node), Values: map[string]string{"node": m.Node, "address": m.Address, "next": next}, Evidence: evidence})
	}
	return out
}

func (f *facts) oldSnapshots() []Hit {
	var out []Hit
	for _, m := range f.Machines {
		s := m.EtcdSnapshots
		if s == nil || f.Time.Sub(s.Since) < StaleSnapshot || f.Time.Sub(s.Last) < StaleSnapshot {
			continue
		}
		last, why := "There is no snapshot of etcd", "the static pod ocadm-etcd saves one every hour; it does not run, or cannot save"
		if !s.Last.IsZero() {
			last = fmt.Sprintf("The last snapshot of etcd is %d hours old", int(f.Time.Sub(s.Last).Hours()))
		}
		if s.Problem != "" {
			why = "the last attempt failed: " + shorten(s.Problem)
		}
		out = append(out, Hit{On: nodeSubject(m.Node), Values: map[string]string{"node": m.Node, "last": last, "why": why}})
	}
	return out
}

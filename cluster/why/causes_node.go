// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
)

const (
	// clockLimit is the tolerated difference between the clocks of two nodes: certificates and leases begin to fail at a minute.
	clockLimit = 30 * time.Second
	// fewInodes is the percentage of free inodes below which the kubelet evicts pods. Source: kubelet, evictionHard.
	fewInodes = 5
	// deadGrace is how long after its grace period a pod may still be terminating.
	deadGrace = time.Minute
)

func nodeCauses() []Cause {
	return []Cause{
		{ID: "node-lost", Code: "OCA-3101", Layer: Node, Title: "A node does not report", What: "Node ${node} does not report",
			Why:  "the machine is off or cut off, or its kubelet does not run",
			Next: "is ${node} on, and can it be reached? On it: systemctl status kubelet containerd; journalctl -u kubelet -n 50",
			When: ready(func(c corev1.NodeCondition) bool { return c.Status == corev1.ConditionUnknown })},
		{ID: "node-no-network", Code: "OCA-5101", Layer: Node, Title: "A node has no pod network", What: "Node ${node} has no pod network",
			Why:  "containerd has no configuration of a network plugin yet: its pod on this node does not run",
			Next: "kubectl get pods -A -o wide --field-selector spec.nodeName=${node}; with --cni none, install a network plugin",
			When: notReady(`(?i)cni (plugin|config)|network plugin`)},
		{ID: "node-no-runtime", Code: "OCA-3102", Layer: Node, Title: "The container runtime of a node does not answer", What: "containerd of node ${node} does not answer",
			Why: "containerd does not run, or its disk is slow or full", Next: "on ${node}: systemctl restart containerd; journalctl -u containerd -n 50; df -h /var/lib/containerd",
			When: notReady(`(?i)container runtime (is|status|did|not)|PLEG|runtime service|containerd`)},
		{ID: "node-not-ready", Code: "OCA-3103", Layer: Symptom, Title: "A node is not Ready", What: "Node ${node} is not Ready", Why: "its kubelet reports this",
			Next: "kubectl describe node ${node}; on ${node}: journalctl -u kubelet -n 50",
			When: ready(func(c corev1.NodeCondition) bool { return c.Status == corev1.ConditionFalse })},
		{ID: "node-disk-pressure", Code: "OCA-3104", Layer: Node, Title: "The disk of a node is nearly full", What: "Node ${node} is short of disk space",
			Why:  "the kubelet evicts pods and accepts no new ones until there is space",
			Next: "on ${node}: df -h / /var/lib/containerd /var/lib/kubelet; du -xh --max-depth=2 /opt /var | sort -h | tail", When: pressure(corev1.NodeDiskPressure)},
		{ID: "node-memory-pressure", Code: "OCA-3105", Layer: Node, Title: "A node is short of memory", What: "Node ${node} is short of memory",
			Why: "the kubelet evicts pods and accepts no new ones without requests", Next: "on ${node}: ps -eo rss,args --sort=-rss | head; add memory or a node",
			When: pressure(corev1.NodeMemoryPressure)},
		{ID: "node-pid-pressure", Code: "OCA-3105", Layer: Node, Title: "A node is short of process ids", What: "Node ${node} is short of process ids",
			Why: "a program keeps creating processes", Next: "on ${node}: ps -eLf | awk '{print $1,$10}' | sort | uniq -c | sort -n | tail",
			When: pressure(corev1.NodePIDPressure)},
		{ID: "node-network-unavailable", Code: "OCA-5101", Layer: Node, Title: "The network plugin has not set up a node", What: "The network plugin has not set up node ${node}",
			Why: "its condition NetworkUnavailable is true", Next: "kubectl -n kube-flannel get pods -o wide; kubectl describe node ${node}",
			When: pressure(corev1.NodeNetworkUnavailable)},
		{ID: "disk-full", Code: "OCA-3104", Layer: Node, Title: "A file system of a node is full", What: "${disk} of node ${node} is full",
			Why: "the kubelet evicts pods; databases, etcd and logs stop when they cannot write", Next: "on ${node}: df -h; du -xh --max-depth=2 /opt /var | sort -h | tail",
			When: disks(Disk.Full)},
		{ID: "disk-nearly-full", Code: "OCA-3104", Layer: Node, Warning: true, Title: "A file system of a node is nearly full", What: "${disk} of node ${node} is nearly full",
			Why: "${limits}", Next: "on ${node}: df -h; du -xh --max-depth=2 /opt /var | sort -h | tail",
			When: disks(Disk.NearlyFull)},
		{ID: "inodes-full", Code: "OCA-3104", Layer: Node, Title: "A file system of a node has no space for more files", What: "${disk} of node ${node} has no inode left",
			Why:  "a file system limits the number of its files, however small they are",
			Next: "on ${node}: df -i; find /var -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail",
			When: inodes},
		{ID: "clock", Code: "OCA-4111", Layer: Node, Title: "The clock of a node is wrong", What: "The clock of node ${node} is wrong",
			Why:  "its lease shows another time than those of the other nodes; certificates and tokens fail",
			Next: "on ${node}: timedatectl; systemctl restart chronyd || systemctl restart systemd-timesyncd",
			When: (*facts).clocks},
		{ID: "machine-id-twice", Code: "OCA-3110", Layer: Setting, Warning: true, Title: "Two nodes have the same machine id", What: "Node ${node} has the machine id of another node",
			Why:  "the machines are copies of one image; DHCP may give both one address, and the pod network one MAC address",
			Next: "on ${node}: rm -f /etc/machine-id /var/lib/dbus/machine-id && systemd-machine-id-setup, then reboot",
			When: func(f *facts) []Hit {
				seen := map[string]string{}
				return f.nodesWhere(func(n *corev1.Node) string {
					id := n.Status.NodeInfo.MachineID
					if seen[id] == "" || id == "" {
						seen[id] = n.Name
						return ""
					}
					return "node " + seen[id] + " has machine id " + id + ", too"
				})
			}},
		{ID: "node-cordoned", Code: "OCA-3106", Layer: Setting, Warning: true, Title: "A node accepts no new pods", What: "Node ${node} accepts no new pods",
			Why: "it was cordoned: kubectl cordon, or drain", Next: "kubectl uncordon ${node}",
			Fix: &Fix{Action: Uncordon, Title: "Let node ${node} accept pods again", Command: "kubectl uncordon ${node}"},
			When: func(f *facts) []Hit {
				return f.nodesWhere(func(n *corev1.Node) string {
					if n.Spec.Unschedulable {
						return "spec.unschedulable is true"
					}
					return ""
				})
			}},
		{ID: "pod-stuck", Code: "OCA-3107", Layer: Setting, Title: "A pod cannot end on a lost node", What: "Pod ${pod} cannot end: node ${node} does not confirm it",
			Why:  "Kubernetes waits for the kubelet of ${node}, and its successor may wait for this pod",
			Next: "if ${node} is off for good: kubectl -n ${namespace} delete pod ${pod} --grace-period=0 --force",
			Fix: &Fix{Action: ForgetPod, Title: "Forget pod ${pod} of the lost node ${node} (only if ${node} is off)",
				Command: "kubectl -n ${namespace} delete pod ${pod} --grace-period=0 --force"},
			When: func(f *facts) []Hit {
				return f.podsWhere(func(p *corev1.Pod) string {
					if p.DeletionTimestamp == nil || f.Time.Sub(p.DeletionTimestamp.Time) < deadGrace || p.Spec.NodeName == "" || !f.nodeUnwell(p.Spec.NodeName) {
						return ""
					}
					return "it should have ended at " + p.DeletionTimestamp.UTC().Format(time.RFC3339)
				})
			}},
		{ID: "pod-evicted", Code: "OCA-3108", Layer: Setting, Warning: true, Title: "The record of an evicted pod remains", What: "Pod ${pod} was evicted",
			Why: "its node was short of disk space or memory; another pod has taken its place", Next: "kubectl -n ${namespace} delete pod ${pod}",
			Fix: &Fix{Action: DeletePod, Title: "Delete the record of the evicted pod ${pod}", Command: "kubectl -n ${namespace} delete pod ${pod}"},
			When: func(f *facts) []Hit {
				return f.podsWhere(func(p *corev1.Pod) string {
					if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Evicted" {
						return ""
					}
					return shorten(p.Status.Message)
				})
			}},
		{ID: "kubelet-swap", Code: "OCA-3012", Layer: Node, Title: "The kubelet refuses to run with swap", Why: "swap is on",
			Next: "on ${node}: swapoff -a && systemctl mask swap.target",
			Says: regexp.MustCompile(`(?i)running with swap on`), In: Journal},
		{ID: "kubelet-stopped", Code: "OCA-3109", Layer: Node, Title: "The kubelet or containerd does not run", What: "${unit} of ${node} does not run",
			Why: "systemd reports it as ${state}", Next: "on ${node}: systemctl restart ${unit}; journalctl -u ${unit} -n 50",
			When: func(f *facts) []Hit {
				var out []Hit
				for _, m := range f.Machines {
					for _, unit := range Units {
						if state := m.Units[unit]; state != "" && state != "active" {
							out = append(out, Hit{On: nodeSubject(m.Node), Values: map[string]string{"unit": unit, "state": state, "node": m.Node},
								Evidence: slices.DeleteFunc([]string{last(m.Journals[unit])}, func(s string) bool { return s == "" })})
						}
					}
				}
				return out
			}},
	}
}

func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return shorten(lines[len(lines)-1])
}

func (f *facts) nodesWhere(evidence func(*corev1.Node) string) []Hit {
	return where(f.Nodes, func(n *corev1.Node) Subject { return nodeSubject(n.Name) }, evidence)
}

func (f *facts) podsWhere(evidence func(*corev1.Pod) string) []Hit {
	return where(f.Pods, podSubject, evidence)
}

// ready finds nodes by their Ready condition.
func ready(is func(corev1.NodeCondition) bool) func(*facts) []Hit {
	return func(f *facts) []Hit {
		return f.nodesWhere(func(n *corev1.Node) string {
			if c := kube.ReadyCondition(n); is(c) {
				return shorten("Ready is " + string(c.Status) + ", " + c.Reason + ": " + c.Message)
			}
			return ""
		})
	}
}

func notReady(message string) func(*facts) []Hit {
	re := regexp.MustCompile(message)
	return ready(func(c corev1.NodeCondition) bool {
		return c.Status == corev1.ConditionFalse && re.MatchString(c.Message)
	})
}

// pressure finds nodes by a condition that is bad when true.
func pressure(kind corev1.NodeConditionType) func(*facts) []Hit {
	return func(f *facts) []Hit {
		return f.nodesWhere(func(n *corev1.Node) string {
			if c := lists.First(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind }); c.Status == corev1.ConditionTrue {
				return shorten(string(kind) + ": " + c.Message)
			}
			return ""
		})
	}
}

func disks(is func(Disk) bool) func(*facts) []Hit {
	return func(f *facts) []Hit {
		return lists.Pick(f.Disks, func(d Disk) (Hit, bool) {
			return Hit{On: nodeSubject(d.Node), Values: map[string]string{"disk": d.What, "limits": d.Limits()}, Evidence: []string{d.What + ": " + d.Space()}}, is(d)
		})
	}
}

func inodes(f *facts) []Hit {
	return lists.Pick(f.Disks, func(d Disk) (Hit, bool) {
		return Hit{On: nodeSubject(d.Node), Values: map[string]string{"disk": d.What}, Evidence: []string{fmt.Sprintf("%s: %d of %d inodes are free",
			d.What, d.InodesFree, d.Inodes)}}, d.Inodes > 0 && d.InodesFree*100/d.Inodes < fewInodes
	})
}

// clocks compares the times that kubelets write in the leases of their nodes. It skips nodes that are not Ready, whose leases are old.
func (f *facts) clocks() []Hit {
	times := map[string]time.Time{}
	var all []time.Time
	for _, l := range f.Leases {
		if l.Namespace == "kube-node-lease" && l.Spec.RenewTime != nil && !f.nodeUnwell(l.Name) {
			times[l.Name] = l.Spec.RenewTime.Time
			all = append(all, l.Spec.RenewTime.Time)
		}
	}
	if len(all) < 2 {
		return nil
	}
	slices.SortFunc(all, time.Time.Compare)
	// A difference between two clocks does not show which is wrong, so this machine's clock counts.
	middle := all[len(all)/2]
	if len(all) == 2 && all[1].Sub(all[0]) > clockLimit {
		middle = f.Time
	}
	return f.nodesWhere(func(n *corev1.Node) string {
		at, there := times[n.Name]
		if off := at.Sub(middle); there && (off > clockLimit || off < -clockLimit) {
			return fmt.Sprintf("its lease differs by %s from the others", off.Round(time.Second))
		}
		return ""
	})
}

// closedNodes adds the first cordoned node, and the first node with a taint of a user and the key of that taint: a pod that finds no node names neither.
func (f *facts) closedNodes(values map[string]string) {
	if n := first(f.Nodes, func(n *corev1.Node) bool { return n.Spec.Unschedulable }); n != nil {
		values["cordoned"] = n.Name
	}
	for _, n := range f.Nodes {
		i := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule && !strings.Contains(t.Key, "kubernetes.io/")
		})
		if i >= 0 {
			values["tainted"], values["taint"] = n.Name, n.Spec.Taints[i].Key
			return
		}
	}
}

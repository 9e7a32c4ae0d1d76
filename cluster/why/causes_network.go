// SPDX-License-Identifier: Apache-2.0

package why

import (
	"net/netip"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
)

func networkCauses() []Cause {
	return []Cause{
		{ID: "dns-loop", Code: "OCA-5102", Layer: Network, Title: "CoreDNS cannot use the name servers of its node",
			Why: "the node's resolv.conf names no server, or a loopback address such as that of systemd-resolved",
			Next: "name a server in /etc/resolv.conf of the node, or with systemd-resolved set resolvConf: /run/systemd/resolve/resolv.conf in " +
				"/var/lib/kubelet/config.yaml and restart the kubelet; then delete the CoreDNS pods",
			Says: regexp.MustCompile(`plugin/loop: Loop|plugin/forward: no nameservers found`), In: LogLine},
		{ID: "dns-down", Code: "OCA-5103", Layer: Network, Title: "The cluster's DNS does not run", Why: "no pod of CoreDNS is ready, so services do not find each other",
			Next: "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide; kubectl -n kube-system logs -l k8s-app=kube-dns",
			When: func(f *facts) []Hit {
				pods := f.dnsPods()
				if !f.allUnwell(pods) {
					return nil
				}
				h := Hit{On: dns, Evidence: lists.Map(pods, f.podLine)}
				for _, t := range f.texts {
					if cannotResolve.MatchString(t.Line) {
						h.Via = append(h.Via, t.On)
						h.Evidence = append(h.Evidence, t.Source+": "+shorten(t.Line))
					}
				}
				return []Hit{h}
			}},
		{ID: "dns-missing", Code: "OCA-5103", Layer: Network, Title: "The cluster has no DNS", Why: "CoreDNS was deleted or scaled to 0",
			Next: "kubectl -n kube-system scale deployment coredns --replicas=2; or, if it was deleted, on the node of init: " +
				"ocadm kubeadm init phase addon coredns --config /etc/ocadm/kubeadm.yaml",
			When: (*facts).noDNS},
		{ID: "name-unresolved", Code: "OCA-5104", Layer: Network, Title: "A name does not resolve", What: "The name ${name} does not resolve",
			Why:  "the DNS server has no record of it, or cannot be reached",
			Next: "kubectl -n kube-system logs -l k8s-app=kube-dns; look for a wrong host name in the configuration of ${component}", Says: cannotResolve,
			In: Message | LogLine, Of: func(f *facts, t Text) bool {
				return ofService(t) && !f.allUnwell(f.dnsPods()) && !pulling.MatchString(t.Line)
			}},
		{ID: "flannel-subnet", Code: "OCA-5105", Layer: Network, On: "node/${node}", Title: "flannel does not run on a node", What: "flannel does not run on node ${node}",
			Why:  "/run/flannel/subnet.env is missing: the flannel pod of the node has not started",
			Next: "kubectl -n kube-flannel get pods -o wide; kubectl -n kube-flannel logs -l app=flannel",
			Says: regexp.MustCompile(`/run/flannel/subnet\.env`), In: Event | State},
		{ID: "flannel-interface", Code: "OCA-5105", Layer: Network, Title: "flannel finds no interface",
			Why:  "the node has no default route, or the address of its interface has changed",
			Next: "on ${node}: ip route; ip -br address; then kubectl -n ${namespace} delete pod ${pod}",
			Says: regexp.MustCompile(`(?i)failed to (find|get) (any )?(valid |default )?interface|Unable to find default.* route`), In: LogLine},
		{ID: "tunnel", Code: "OCA-5112", Layer: Network, On: "node/${node}", Title: "Packets of the pod network do not reach a node",
			What: "Packets of the pod network do not go between ${from} and ${node}",
			Why: "a firewall or security group between the nodes drops UDP 8472, or their network carries smaller packets than flannel sends; " +
				"or a firewall on ${node} drops TCP 10250 from the pod network",
			Next: "let UDP 8472 through between ${from} and ${node}, both ways, and TCP 10250 to ${node}; if small packets pass, compare the MTU: on both, ip link show flannel.1",
			When: (*facts).brokenTunnels},
		{ID: "flannel-no-cidr", Code: "OCA-5106", Layer: Network, Title: "A node has no range of pod addresses",
			Why:  "kube-controller-manager has not assigned a podCIDR to the node: the pod network is used up, or not set",
			Next: "kubectl get nodes -o custom-columns=NODE:.metadata.name,CIDR:.spec.podCIDR; compare with --cluster-cidr of kube-controller-manager",
			Says: regexp.MustCompile(`pod cidr not assigned|Error registering network: failed to acquire lease`), In: LogLine},
		{ID: "pod-addresses", Code: "OCA-5106", Layer: Network, On: "node/${node}", Title: "A node has no pod address left", What: "Node ${node} has no pod address left",
			Why:  "addresses of ended pods were not released, or more pods run than the range holds",
			Next: "on ${node}: ls /var/lib/cni/networks/*/ | wc -l; reboot ${node} at a quiet time",
			Says: regexp.MustCompile(`no IP addresses available|failed to allocate for range`), In: Event | State},
		{ID: "cni-plugin", Code: "OCA-5107", Layer: Network, On: "node/${node}", Title: "A program of the network plugin is missing",
			What: "The network program ${plugin} is missing on ${node}",
			Why:  "/opt/cni/bin lacks it", Next: "on ${node}: ls /opt/cni/bin; run ocadm join again, which installs it",
			Says: regexp.MustCompile(`failed to find plugin "(?P<plugin>[^"]+)"`), In: Event | State},
		{ID: "netfilter", Code: "OCA-5108", Layer: Network, Title: "A kernel module for pod networks is missing", Why: "br_netfilter, vxlan or nf_tables cannot be used",
			Next: "on ${node}: modprobe -a br_netfilter vxlan nf_tables; sysctl net.bridge.bridge-nf-call-iptables", In: LogLine | Event,
			Says: regexp.MustCompile(`bridge-nf-call-iptables.*no such file|br_netfilter|failed to (create|add) vxlanDevice|vxlan.*operation not supported`)},
		{ID: "sandbox", Code: "OCA-5109", Layer: Network, Title: "The runtime cannot set up a pod", Why: "the network plugin or the runtime refuses it",
			Next: "kubectl -n ${namespace} describe pod ${pod}; on ${node}: journalctl -u containerd -n 50",
			Says: regexp.MustCompile(`FailedCreatePodSandBox: `), In: Event},
		{ID: "service-unreachable", Code: "OCA-5110", Layer: Container, Title: "A service cannot be reached from a pod", What: "${pod} cannot reach ${address}",
			Why:  "the service there does not run, or a firewall or kube-proxy drops the connection",
			Next: "kubectl get svc,endpointslices -A | grep -wF ${host}; kubectl -n kube-system get pods -l k8s-app=kube-proxy -o wide",
			Says: regexp.MustCompile(`dial tcp (?P<address>\[?(?P<host>[^ \]]+)\]?:\d+): (connect: )?(no route to host|network is unreachable|i/o timeout)`), In: LogLine,
			Of: func(f *facts, t Text) bool { return ofService(t) && !f.toDatabase(t.Line) }},
		{ID: "proxy-down", Code: "OCA-5111", Layer: Network, On: "node/${node}", Title: "kube-proxy does not run on a node", What: "kube-proxy does not run on node ${node}",
			Why: "without it, the addresses of services do not work on this node", Next: "kubectl -n kube-system logs ${pod}",
			When: func(f *facts) []Hit { return f.agentDown("k8s-app", "kube-proxy") }},
		{ID: "flannel-down", Code: "OCA-5105", Layer: Symptom, Title: "flannel does not run on a node", What: "flannel does not run on node ${node}",
			Why: "without it, pods of this node cannot reach those of other nodes", Next: "kubectl -n ${namespace} logs ${pod}",
			When: func(f *facts) []Hit { return f.agentDown("app", "flannel") }},
	}
}

var (
	cannotResolve = regexp.MustCompile(`(?:lookup (?P<name>[^ :]+).*: (?:no such host|server misbehaving|i/o timeout|connection refused)|` +
		`[Cc]ould not resolve host:? ?(?P<name2>\S*)|Temporary failure in name resolution|Name or service not known)`)
	pulling = regexp.MustCompile(`(?i)pull|/v2/`)
)

// noDNS finds a CoreDNS without pods. Clusters of others may have another DNS, so the absence of all counts only if names do not resolve.
func (f *facts) noDNS() []Hit {
	for _, d := range f.Deployments {
		if d.Namespace == "kube-system" && d.Name == "coredns" {
			if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
				return []Hit{{On: dns, Evidence: []string{"Deployment kube-system/coredns has 0 replicas"}}}
			}
			return nil
		}
	}
	h := Hit{On: dns, Evidence: []string{"there is neither a Deployment kube-system/coredns nor a pod of it"}}
	for _, t := range f.texts {
		if ofService(t) && !pulling.MatchString(t.Line) && cannotResolve.MatchString(t.Line) {
			h.Via = append(h.Via, t.On)
			h.Evidence = append(h.Evidence, t.Source+": "+shorten(t.Line))
		}
	}
	if len(h.Via) == 0 || len(f.Pods) == 0 || len(f.dnsPods()) > 0 || f.lacks("pods") || f.lacks("deployments") {
		return nil
	}
	return []Hit{h}
}

// ofService excludes the static pods of the control plane: while the API server is down, the others log its refusals, which explain nothing.
func ofService(t Text) bool { return t.On != controlPlane }

// agentDown finds unhealthy pods of a DaemonSet on nodes that report.
func (f *facts) agentDown(label, value string) []Hit {
	return lists.Pick(f.podsLabelled("", label, value), func(p *corev1.Pod) (Hit, bool) {
		return Hit{On: nodeSubject(p.Spec.NodeName), Values: podValues(p), Evidence: []string{f.podLine(p)}},
			f.unwell(p) && p.Spec.NodeName != "" && !f.nodeSilent(p.Spec.NodeName)
	})
}

// nodeSilent reports whether the kubelet of a node does not report, so that the state of its pods is outdated.
func (f *facts) nodeSilent(name string) bool {
	n := f.node(name)
	return n != nil && kube.ReadyCondition(n).Status == corev1.ConditionUnknown
}

// podLine returns the first text about a pod.
func (f *facts) podLine(p *corev1.Pod) string {
	i := slices.IndexFunc(f.texts, func(t Text) bool { return t.On == podSubject(p) })
	if i < 0 {
		return "pod " + p.Name + " is " + string(p.Status.Phase) + " and not ready"
	}
	return f.texts[i].Source + ": " + shorten(f.texts[i].Line)
}

// brokenTunnels excludes nodes whose kubelets do not report, and those without flannel: they have another problem.
func (f *facts) brokenTunnels() []Hit {
	var out []Hit
	for _, m := range f.Machines {
		for _, t := range m.Tunnels {
			if t.Problem == "" {
				continue
			}
			n := f.nodeAtTunnel(t.To)
			if n == nil || f.nodeUnwell(n.Name) || !f.flannelOn(n.Name) || !f.flannelOn(m.Node) {
				continue
			}
			out = append(out, Hit{On: nodeSubject(n.Name), Values: map[string]string{"from": m.Node, "node": n.Name}, Evidence: []string{"on " + m.Node + ": " + t.Problem}})
		}
	}
	return out
}

func (f *facts) flannelOn(node string) bool {
	return slices.ContainsFunc(f.podsLabelled("kube-flannel", "app", "flannel"), func(p *corev1.Pod) bool { return p.Spec.NodeName == node && !f.unwell(p) })
}

// nodeAtTunnel returns the node whose pod CIDRs contain an address.
func (f *facts) nodeAtTunnel(address string) *corev1.Node {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return nil
	}
	return first(f.Nodes, func(n *corev1.Node) bool {
		return slices.ContainsFunc(append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...), func(cidr string) bool {
			p, err := netip.ParsePrefix(cidr)
			return err == nil && p.Contains(a)
		})
	})
}

// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Node is what matters of a machine of the cluster.
type Node struct {
	Name   string
	Labels map[string]string
	Ready  bool
	// Since is when it became Ready, or ceased to be.
	Since time.Time
	// Message says why it is not Ready, as its condition does.
	Message string
	// Address at which other machines reach it (its first InternalIP), "" while its kubelet has reported none.
	Address string
	// Created is when it joined the cluster.
	Created time.Time
	// Pressure are the conditions that say what it is short of: MemoryPressure, DiskPressure, PIDPressure.
	Pressure []string
	// Joins is until when a node that has never been Ready is expected rather than missed; zero if it was Ready before.
	Joins time.Time
}

// joining is how long a new node may take until it is Ready: its pod network and its images have to arrive. firstReport is how long
// after its creation the first report of its kubelet comes; a node that stops being Ready later was Ready in between.
const (
	joining     = 3 * time.Minute
	firstReport = 10 * time.Second
)

// Joining reports whether a node is new and not Ready yet.
func (n Node) Joining(now time.Time) bool { return !n.Ready && now.Before(n.Joins) }

var pressures = []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}

// NodeOf reads a Node object. One without a Ready condition has not been heard of and is not Ready.
func NodeOf(o *corev1.Node) Node {
	n := Node{Name: o.Name, Labels: o.Labels, Message: "its kubelet has not reported yet", Created: o.CreationTimestamp.Time}
	for _, a := range o.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			n.Address = a.Address
			break
		}
	}
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready, n.Since, n.Message = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time, strings.TrimSuffix(c.Message, ".")
		}
		if slices.Contains(pressures, c.Type) && c.Status == corev1.ConditionTrue {
			n.Pressure = append(n.Pressure, string(c.Type))
		}
	}
	if !n.Ready && !n.Since.After(n.Created.Add(firstReport)) {
		n.Joins = n.Created.Add(joining)
	}
	return n
}

// place is where a workload may run.
type place struct {
	// noNode is true if no node has the labels it asks for; label is what they are, in words.
	noNode bool
	label  string
	// lost are the nodes that have them and are not Ready, ready counts the others.
	lost  []string
	ready int
}

// placeOf a workload among the nodes, where that is decided by the role of a node: nil for any other, and while the nodes are not known.
func placeOf(o client.Object, seen Seen) *place {
	spec, _ := component.PodOf(o)
	_, everywhere := o.(*appsv1.DaemonSet)
	if _, members := o.(*appsv1.StatefulSet); seen.Nodes == nil || spec == nil || members || !everywhere && !onRole(*spec) {
		return nil
	}
	p := &place{noNode: true, label: labelsWanted(*spec)}
	required := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec})
	for _, n := range seen.Nodes {
		fits, err := required.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}})
		if err != nil || !fits {
			continue
		}
		p.noNode = false
		switch {
		case n.Ready:
			p.ready++
		case !n.Joining(seen.Now):
			p.lost = append(p.lost, n.Name)
		}
	}
	slices.Sort(p.lost)
	return p
}

// onRole reports whether pods run only on nodes of a role that a cloud need not have.
func onRole(s corev1.PodSpec) bool {
	optional := false
	for _, key := range slices.Concat(slices.Collect(maps.Keys(s.NodeSelector)), affinityKeys(s)) {
		role, ours := strings.CutPrefix(key, v1alpha1.NodeRolePrefix)
		if ours && role == "controller" {
			return false
		}
		optional = optional || ours
	}
	return optional
}

func affinityTerms(s corev1.PodSpec) []corev1.NodeSelectorTerm {
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil || s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func affinityKeys(s corev1.PodSpec) (keys []string) {
	for _, term := range affinityTerms(s) {
		for _, e := range term.MatchExpressions {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// labelsWanted says which labels pods ask of their node: "label a=b", "label a=b or c=d", "labels a=b and c=d".
func labelsWanted(s corev1.PodSpec) string {
	var all, alternatives []string
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		all = append(all, key+"="+s.NodeSelector[key])
	}
	for _, term := range affinityTerms(s) {
		var each []string
		for _, e := range term.MatchExpressions {
			if e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				each = append(each, e.Key+"="+e.Values[0])
				continue
			}
			each = append(each, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Key, e.Operator, strings.Join(e.Values, ","))))
		}
		alternatives = append(alternatives, strings.Join(each, " and "))
	}
	if len(alternatives) > 0 {
		all = append(all, strings.Join(alternatives, " or "))
	}
	if len(all) > 1 {
		return "labels " + strings.Join(all, " and ")
	}
	return "label " + strings.Join(all, "")
}

// PublicAddress returns the address of a node for a cloud whose spec names none: of a node with the role controller, where the services
// and the console's port run, or of a control-plane node if there is none. It prefers nodes that are Ready, then the oldest, then the
// first by name. It returns "" if no such node has an address.
func PublicAddress(nodes []Node) string {
	for _, label := range []string{v1alpha1.NodeRolePrefix + "controller", v1alpha1.LabelControlPlane} {
		fit := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool {
			value, has := n.Labels[label]
			return n.Address == "" || !has || strings.HasPrefix(label, v1alpha1.NodeRolePrefix) && value != v1alpha1.Enable
		})
		if len(fit) > 0 {
			return slices.MinFunc(fit, func(a, b Node) int {
				switch {
				case a.Ready && !b.Ready:
					return -1
				case b.Ready && !a.Ready:
					return 1
				}
				return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
			}).Address
		}
	}
	return ""
}

// nodesNamed is how many nodes a message names.
const nodesNamed = 10

// Lost are the nodes of a cloud that are not Ready, with the reason: those with a role in it, and those that run one of its pods. A node
// that is joining is not lost.
func Lost(nodes []Node, pods []corev1.Pod, now time.Time) map[string]string {
	lost := map[string]string{}
	for _, n := range OfCloud(nodes, pods) {
		if !n.Ready && !n.Joining(now) {
			lost[n.Name] = n.Message
		}
	}
	return lost
}

// OfCloud are the nodes with a role in the cloud, and those that run one of its pods.
func OfCloud(nodes []Node, pods []corev1.Pod) []Node {
	used := map[string]bool{}
	for i := range pods {
		used[pods[i].Spec.NodeName] = true
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !used[n.Name] && !hasRole(n) })
}

func hasRole(n Node) bool {
	for key, value := range n.Labels {
		if value == v1alpha1.Enable && strings.HasPrefix(key, v1alpha1.NodeRolePrefix) {
			return true
		}
	}
	return false
}

// NodesReady says which nodes of the cloud are lost. Nodes that may not be read are nil; then there is no such condition.
func (c *Cloud) NodesReady(nodes []Node, pods []corev1.Pod) {
	if nodes == nil {
		c.remove(v1alpha1.ConditionNodesReady)
		return
	}
	lost := Lost(nodes, pods, c.now)
	if len(lost) == 0 {
		c.set(v1alpha1.ConditionNodesReady, true, ReasonNodesReady, "")
		return
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		if len(parts) == nodesNamed {
			parts = append(parts, fmt.Sprintf("and %d more", len(lost)-nodesNamed))
			break
		}
		parts = append(parts, NotReady(name, lost[name]))
	}
	message := fmt.Sprintf("%d of %d nodes are not Ready: %s", len(lost), len(OfCloud(nodes, pods)), strings.Join(parts, "; "))
	c.set(v1alpha1.ConditionNodesReady, false, ReasonNodesNotReady, message)
}

// NotReady names a node and why it is not Ready, if that is known.
func NotReady(name, why string) string {
	if why == "" {
		return name
	}
	return name + " (" + why + ")"
}

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
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Node holds what the status needs to know about a node of the cluster.
type Node struct {
	Name   string
	Labels map[string]string
	Ready  bool
	// Since is when Ready last changed.
	Since time.Time
	// Message explains why the node is not Ready; it comes from its condition.
	Message string
	// Address is the node's first InternalIP, "" until its kubelet has reported one.
	Address string
	// Created is when it joined the cluster.
	Created time.Time
	// Cordoned is true if the node accepts no new pods. The operator's cache does not hold that.
	Cordoned bool
	// Pressure lists the true conditions among MemoryPressure, DiskPressure and PIDPressure.
	Pressure []string
	// Joins is until when a node that has never been Ready counts as joining rather than lost; zero if it was Ready before.
	Joins time.Time
}

// joining is how long a new node may take to become Ready: it must first pull the pod network and its images. firstReport is how long after the creation
// of a node the first report of its kubelet arrives; a node that becomes not Ready later was Ready in between.
const (
	joining     = 3 * time.Minute
	firstReport = 10 * time.Second
)

// Joining reports whether a node is new and not Ready yet. One that would join for longer than any does was created while a clock was ahead.
func (n Node) Joining(now time.Time) bool {
	return !n.Ready && now.Before(n.Joins) && n.Joins.Before(now.Add(2*joining))
}

var pressures = []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}

// NodeOf converts a Node object. A node without a Ready condition has not reported yet and is not Ready.
func NodeOf(o *corev1.Node) Node {
	n := Node{Name: o.Name, Labels: o.Labels, Message: "its kubelet has not reported yet", Created: o.CreationTimestamp.Time,
		Cordoned: o.Spec.Unschedulable}
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

// place describes where a workload may run.
type place struct {
	// noNode is true if no node has the required labels; label describes these labels.
	noNode bool
	label  string
	// lost lists the matching nodes that are not Ready, ready counts the others.
	lost  []string
	ready int
}

// placeOf returns the place of a workload that is tied to the role of a node. It returns nil for any other workload, and while the nodes are unknown.
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

// onRole reports whether the pods run only on nodes of an optional role.
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
		keys = append(keys, lists.Map(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) string { return e.Key })...)
	}
	return keys
}

// labelsWanted describes the node labels that pods require: "label a=b", "label a=b or c=d", "labels a=b and c=d".
func labelsWanted(s corev1.PodSpec) string {
	all := lists.Map(slices.Sorted(maps.Keys(s.NodeSelector)), func(key string) string { return key + "=" + s.NodeSelector[key] })
	alternatives := lists.Map(affinityTerms(s), func(term corev1.NodeSelectorTerm) string {
		return strings.Join(lists.Map(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) string {
			if e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				return e.Key + "=" + e.Values[0]
			}
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Key, e.Operator, strings.Join(e.Values, ",")))
		}), " and ")
	})
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
				return cmp.Or(lists.TrueFirst(a.Ready, b.Ready), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
			}).Address
		}
	}
	return ""
}

// nodesNamed is the maximum number of nodes in a message.
const nodesNamed = 10

// Lost returns the nodes of the cloud that are not Ready, with the reason. They have a role in the cloud or run one of its pods. A joining node is not
// lost.
func Lost(nodes []Node, pods []corev1.Pod, now time.Time) map[string]string {
	lost := map[string]string{}
	for _, n := range OfCloud(nodes, pods) {
		if !n.Ready && !n.Joining(now) {
			lost[n.Name] = n.Message
		}
	}
	return lost
}

// OfCloud returns the nodes that have a role in the cloud or run one of its pods.
func OfCloud(nodes []Node, pods []corev1.Pod) []Node {
	used := lists.Set(pods, func(p corev1.Pod) string { return p.Spec.NodeName })
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

// NodesReady reports which nodes of the cloud are lost. nodes is nil if they may not be read; then the condition is removed.
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
	parts := lists.Some(lists.Map(slices.Sorted(maps.Keys(lost)), func(name string) string { return NotReady(name, lost[name]) }), nodesNamed)
	message := fmt.Sprintf("%d of %d nodes are not Ready: %s", len(lost), len(OfCloud(nodes, pods)), strings.Join(parts, "; "))
	c.set(v1alpha1.ConditionNodesReady, false, ReasonNodesNotReady, message)
}

// NotReady returns the name of a node and, if known, why it is not Ready.
func NotReady(name, why string) string {
	if why == "" {
		return name
	}
	return name + " (" + why + ")"
}

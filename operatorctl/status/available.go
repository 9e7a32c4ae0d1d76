// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

// The reasons of condition HighlyAvailable.
const (
	ReasonSpread    = "Spread"
	ReasonNotSpread = "NotSpread"
)

// majority is the number of members that a cluster needs to survive the loss of one.
const majority = 3

// HighlyAvailable reports which parts of a cloud of profile ha fail with one node, and why. Other clouds have no such condition.
func (c *Cloud) HighlyAvailable(cluster component.Cluster, nodes []Node, pods []corev1.Pod) {
	if cluster.Profile != component.HA {
		c.remove(v1alpha1.ConditionHighlyAvailable)
		return
	}
	var twice, once, single, lacks []string
	for _, name := range slices.Sorted(maps.Keys(cluster.Components)) {
		r := cluster.Components[name]
		deployment := r.WorkloadKind() == component.Deployment
		switch {
		case !r.Enabled || !deployment && r.Workload.Kind != component.StatefulSet:
		case r.Workload.FixedMembers && r.Replicas < majority:
			lacks = append(lacks, fmt.Sprintf("%s has %d member, which cannot change while it runs", name, r.Replicas))
		case r.Single != "":
			single = append(single, name)
		case deployment && r.Replicas > 1:
			twice = append(twice, name)
		case deployment:
			once = append(once, name)
		}
	}
	if len(once) > 0 {
		why := "set in the spec"
		if slices.ContainsFunc(once, func(name string) bool { return cluster.Components[name].Workload.Locks }) {
			why += ", or fewer than three members of " + cluster.LockKeeper().Name + " for its locks"
		}
		lacks = append(lacks, fmt.Sprintf("one copy of %s (%s)", strings.Join(once, ", "), why))
	}
	if nodes != nil {
		lacks = append(lacks, lacksNodes(cluster, nodes, twice, running(pods))...)
	}
	message := ""
	if len(single) > 0 {
		message = "by design one copy of " + strings.Join(single, ", ")
	}
	if len(lacks) > 0 {
		c.set(v1alpha1.ConditionHighlyAvailable, false, ReasonNotSpread, strings.Join(append(lacks, message), "; "))
		return
	}
	c.set(v1alpha1.ConditionHighlyAvailable, true, ReasonSpread, message)
}

// lacksNodes returns what fails with one node because too few nodes take the services, or because its pods share a node. on is from running.
func lacksNodes(c component.Cluster, nodes []Node, twice []string, on map[string]map[string]int) (out []string) {
	ready := lists.Count(nodes, func(n Node) bool { return n.Ready && n.Labels[v1alpha1.NodeRolePrefix+"controller"] == v1alpha1.Enable })
	if ready < 2 && len(twice) > 0 {
		return []string{fmt.Sprintf("%d Ready node with the role controller, so all copies share it: ocadm join --control-plane adds one", ready)}
	}
	keeper := c.LockKeeper()
	for _, node := range slices.Sorted(maps.Keys(on[keeper.Name])) {
		if n := on[keeper.Name][node]; keeper.Enabled && keeper.Replicas >= majority && int(keeper.Replicas)-n <= int(keeper.Replicas)/2 {
			text := fmt.Sprintf("%d of %d members of %s are on node %s, and it stops if that node is lost", n, keeper.Replicas, keeper.Name, node)
			if ready >= majority { // its volumes keep the members there
				text += "; to recreate it on all nodes: docs/configure.md, Two copies"
			}
			out = append(out, text)
		}
	}
	if ready == 2 && keeper.Enabled && len(out) == 0 {
		out = append(out, "2 Ready nodes with the role controller: "+keeper.Name+" stops if the node with two of its members is lost")
	}
	for _, name := range twice { // they stay together after a node was lost and has returned
		for node, n := range on[name] {
			if n > 1 && len(on[name]) == 1 {
				out = append(out, fmt.Sprintf("all copies of %s are on node %s; to spread them: ocadm component restart %s", name, node, name))
			}
		}
	}
	return out
}

// running returns the number of pods of each component on each node. Pods that end do not count.
func running(pods []corev1.Pod) map[string]map[string]int {
	out := map[string]map[string]int{}
	for i := range pods {
		p := &pods[i]
		name, node := p.Labels[v1alpha1.LabelComponent], p.Spec.NodeName
		if node == "" || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if out[name] == nil {
			out[name] = map[string]int{}
		}
		out[name][node]++
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
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
func (c *Cloud) HighlyAvailable(cluster component.Cluster, nodes []Node) {
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
		lacks = append(lacks, lacksNodes(cluster, nodes, len(twice))...)
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

// lacksNodes returns what fails because too few nodes take the services.
func lacksNodes(c component.Cluster, nodes []Node, twice int) []string {
	ready := 0
	for _, n := range nodes {
		if n.Ready && n.Labels[v1alpha1.NodeRolePrefix+"controller"] == v1alpha1.Enable {
			ready++
		}
	}
	keeper := c.LockKeeper()
	switch {
	case ready < 2 && twice > 0:
		return []string{fmt.Sprintf("%d Ready node with the role controller, so all copies share it: ocadm join --control-plane adds one", ready)}
	case ready == 2 && keeper.Enabled:
		return []string{"2 Ready nodes with the role controller: " + keeper.Name + " stops if the node with two of its members is lost"}
	}
	return nil
}

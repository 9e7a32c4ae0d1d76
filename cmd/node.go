// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
)

// newNode groups the commands that work on nodes.
func newNode(a *app) *cobra.Command {
	c := group(&cobra.Command{
		Use:   "node",
		Short: "Change the roles of nodes, remove a lost node, and diagnose a node",
		Long: "The roles of a node decide what it does for the cloud: run its services, run virtual machines. They are labels of the Node.\n\n" +
			settingsHelp,
		Example: "  ocadm node enable-host-agent node2\n  ocadm node disable-onecloud-controller node3\n  ocadm node doctor node2\n  ocadm node remove node3",
	}, newNodeRemove(a), newNodeDoctor(a))
	for _, r := range []struct {
		name, role string
		on         bool
		short      string
	}{
		{"enable-host-agent", cluster.RoleHost, true, "Run VMs on nodes"},
		{"disable-host-agent", cluster.RoleHost, false, "Stop the host agent on nodes; VMs keep running, unmanaged"},
		{"enable-onecloud-controller", cluster.RoleController, true, "Run the cloud's services on nodes"},
		{"disable-onecloud-controller", cluster.RoleController, false, "Stop running the cloud's services on nodes"},
	} {
		c.AddCommand(newNodeRole(a, r.name, r.role, r.on, r.short))
	}
	return c
}

// changedNode is the output of role commands for a node.
type changedNode struct {
	Node   string `json:"node"`
	Action string `json:"action"`
}

func newNodeRole(a *app, name, role string, on bool, short string) *cobra.Command {
	var kubeconfig string
	var former []string
	var yes bool
	value := "enable"
	if !on {
		value = "disable"
	}
	c := shows(a, &cobra.Command{
		Use:     name + " NODE...",
		Short:   short,
		Long:    "Sets the label onecloud.yunion.io/" + role + "=" + value + " on the nodes. If a name is unknown, no node changes.",
		Example: "  ocadm node " + name + " node2\n  ocadm node " + name + " node2 node3",
		Args:    cobra.ArbitraryArgs,
	}, "table", func(c *cobra.Command, nodes []string) (changed []changedNode, err error) {
		nodes = append(nodes, former...)
		if len(nodes) == 0 {
			return nil, misused("no node was named", c.UseLine()+"; kubectl get nodes lists the names")
		}
		if role == cluster.RoleHost && !on {
			if err := confirmLeaving(c.Context(), a, kubeconfig, nodes, yes); err != nil {
				return nil, err
			}
		}
		err = withKube(c.Context(), kubeconfig, func(ctx context.Context, k client.WithWatch) error {
			changes, err := cluster.SetRole(ctx, k, nodes, role, on)
			changed = lists.Map(changes, func(c kube.Change) changedNode { return changedNode{c.Name, string(c.Action)} })
			return err
		})
		return changed, err
	}, func(p *page, changed []changedNode) {
		table(p, []string{"NODE", "ACTION"}, changed, func(n changedNode) []string { return []string{n.Node, n.Action} })
	})
	switch {
	case role == cluster.RoleHost && on:
		c.Long += " On each node, first run:\n\n  ocadm join phase compute --enable-host-agent\n\nIt prepares the programs and kernel settings that the agents need."
	case role == cluster.RoleHost:
		c.Long += "\n\nThe pods of the host agent and of Open vSwitch stop there. The address of a compute node is usually on a bridge of Open vSwitch, so the\n" +
			"node can lose its network. Virtual machines keep running, but nothing manages them: move them first. It asks for confirmation."
		addYes(c.Flags(), &yes)
	}
	addKubeconfig(c.Flags(), &kubeconfig)
	c.Flags().StringSliceVar(&former, "node", nil, "the former way to name a node")
	hide(c.Flags(), "node")
	a.readsSettings(c, map[string]string{"kubeconfig": "cluster.kubeconfig"})
	return c
}

// confirmLeaving explains what compute nodes lose without their host agent, and asks.
func confirmLeaving(ctx context.Context, a *app, kubeconfig string, nodes []string, yes bool) error {
	var leaving []string
	err := withKube(ctx, kubeconfig, func(ctx context.Context, k client.WithWatch) (err error) {
		leaving, err = cluster.WithRole(ctx, k, nodes, cluster.RoleHost)
		return err
	})
	if err != nil {
		return err
	}
	return warnLeaving(ctx, a, leaving, yes)
}

// warnLeaving names the nodes that lose their host agent and, unless that is accepted, asks.
func warnLeaving(ctx context.Context, a *app, leaving []string, accepted bool) error {
	for _, n := range leaving {
		name, _, _ := strings.Cut(n, " ")
		a.warn("the pods of the host agent and of Open vSwitch stop on %s: if its address is on a bridge of Open vSwitch, such as br0, the node can lose its "+
			"network; its virtual machines keep running, but nothing manages them (climc server-list --host %s lists them)", n, name)
	}
	if accepted || len(leaving) == 0 {
		return nil
	}
	return a.ask(ctx, "Continue? [y/N]", "yes", "No node was changed", "move the virtual machines, then repeat with --yes")
}

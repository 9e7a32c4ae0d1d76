// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
)

// newNode groups the commands that give nodes roles and take them away.
func newNode(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:     "node",
		Short:   "Give nodes roles in the cloud, and find out why one does not work",
		Long:    "A node's roles say what it does for the cloud: run its services, run virtual machines. They are labels of the node.",
		Example: "  ocadm node enable-host-agent --node node2\n  ocadm node disable-onecloud-controller --node node3\n  ocadm node doctor node2",
		Args:    cobra.ArbitraryArgs,
		RunE:    groupRunE,
	}
	for _, r := range []struct {
		name, role string
		on         bool
		short      string
	}{
		{"enable-host-agent", cluster.RoleHost, true, "Let nodes run virtual machines"},
		{"disable-host-agent", cluster.RoleHost, false, "Let nodes run no virtual machines any more"},
		{"enable-onecloud-controller", cluster.RoleController, true, "Let nodes run the services of the cloud"},
		{"disable-onecloud-controller", cluster.RoleController, false, "Let nodes run no services of the cloud any more"},
	} {
		c.AddCommand(newNodeRole(a, r.name, r.role, r.on, r.short))
	}
	c.AddCommand(newNodeDoctor(a))
	return c
}

func newNodeRole(a *app, name, role string, on bool, short string) *cobra.Command {
	var kubeconfig string
	var nodes []string
	output := ui.NewFormat("table", "json", "yaml")
	value := "enable"
	if !on {
		value = "disable"
	}
	c := &cobra.Command{
		Use:     name + " --node NAME [--node NAME]",
		Short:   short,
		Long:    "Sets the label onecloud.yunion.io/" + role + "=" + value + " of the nodes. All names are looked up before any node is changed.",
		Example: "  ocadm node " + name + " --node node2\n  ocadm node " + name + " --node node2 --node node3",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if len(nodes) == 0 {
				return misused("no node was named", "give --node NAME, as kubectl get nodes shows it")
			}
			return withKube(c.Context(), kubeconfig, requestTimeout, func(ctx context.Context, k client.WithWatch) error {
				changes, err := cluster.SetRole(ctx, k, nodes, role, on)
				if err != nil {
					return err
				}
				return printNodes(a.Out, output.String(), changes)
			})
		},
	}
	addKubeconfig(c.Flags(), &kubeconfig)
	c.Flags().StringSliceVar(&nodes, "node", nil, "name of a node; may be given more than once")
	c.Flags().VarP(output, "output", "o", "how the result is printed")
	return c
}

func printNodes(w io.Writer, format string, changes []kube.Change) error {
	type row struct {
		Node   string `json:"node"`
		Action string `json:"action"`
	}
	rows := make([]row, len(changes))
	table := make([][]string, len(changes))
	for i, c := range changes {
		rows[i] = row{c.Name, string(c.Action)}
		table[i] = []string{c.Name, string(c.Action)}
	}
	return ui.Print(w, format, rows, func(w io.Writer) error { return ui.Table(w, []string{"NODE", "ACTION"}, table) })
}

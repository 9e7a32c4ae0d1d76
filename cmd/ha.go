// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/spread"
	vipphase "yunion.io/x/ocadm/phases/vip"
)

// newHA groups the commands about the availability of the control plane.
func newHA(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "ha", Short: "Show, test and enable a control plane of several nodes",
		Long:    "Commands for a control plane of several nodes. docs/high-availability.md describes how to create one.",
		Example: "  ocadm ha status\n  ocadm ha test --dry-run\n  ocadm ha test",
	}, newHAStatus(a), newHAEnable(a), newHATest(a), newHAAgent(a), newHAFault())
}

func newHAStatus(a *app) *cobra.Command {
	return shows(a, &cobra.Command{
		Use: "status", Short: "Show the control-plane nodes, etcd, and which node has the virtual address",
		Long: "Shows for each control-plane node whether it is Ready, whether its API server answers, and whether its member of etcd votes; which node\n" +
			"has the virtual address; and how many more nodes may be lost. It lists every problem, including what the loss of one node would stop in the\n" +
			"cluster and its clouds: cluster DNS on one node, a database with one copy, services that run once. Run it on a control-plane node: it\n" +
			"also works there while the virtual address does not answer, and detects if more than one machine has it.",
		Example: "  ocadm ha status\n  ocadm ha status -o json | jq -r .holder\n  ocadm ha status -o json | jq '.problems, .notRedundant'",
	}, "table", func(c *cobra.Command, _ []string) (out haStatus, err error) {
		h, err := controlPlaneHost(c.Context(), true)
		if err != nil {
			return out, err
		}
		why := a.askNearest(c.Context(), h)
		k, err := h.Kube(c.Context())
		if err != nil {
			return out, noAccess(h, err)
		}
		if out.Status, err = vipphase.Look(c.Context(), h, k); err != nil {
			return out, noAccess(h, err)
		}
		out.SeeHolders(c.Context(), h)
		if why != "" {
			out.Problems = append([]string{"the endpoint " + out.Endpoint + " does not answer: " + why}, out.Problems...)
		}
		if out.NotRedundant, err = spread.Once(c.Context(), k); err != nil {
			out.NotRedundant = []string{fmt.Sprintf("cannot determine what runs on one node only: %v", err)}
		}
		return out, nil
	}, printHA)
}

// haStatus is the output of "ha status -o json".
type haStatus struct {
	vipphase.Status
	// NotRedundant lists what of the cluster and its clouds one node's loss stops, although the control plane survives. Each ends with the command to
	// fix it.
	NotRedundant []string `json:"notRedundant,omitempty"`
}

func printHA(p *page, s haStatus) {
	table(p, []string{"NODE", "ADDRESS", "READY", "API SERVER", "ETCD", "VIRTUAL ADDRESS"}, s.Nodes, func(n vipphase.NodeStatus) []string {
		return []string{n.Name, n.Address, yesNo(n.Ready), map[bool]string{true: "answers", false: "silent"}[n.APIServer], n.Etcd,
			map[bool]string{true: s.Address, false: "-"}[n.Holds]}
	})
	p.line("\nendpoint %s; the control plane survives the loss of %d more node(s)", s.Endpoint, s.Tolerates)
	p.list("\nProblems:", s.Problems)
	p.list("\nNot redundant:", s.NotRedundant)
}

// newHAAgent returns the command that runs beside keepalived.
func newHAAgent(a *app) *cobra.Command {
	agent := vip.Agent{}
	c := &cobra.Command{
		Use: "agent", Short: "Serve keepalived on a control-plane node", Hidden: true,
		Long: "Checks the API server of this node for keepalived, and writes keepalived's configuration from the settings in the cluster. The static\n" +
			"pod ocadm-vip runs it.",
		Example: "  ocadm ha agent --address 10.0.0.1 --node node1\n  ocadm ha agent --address 10.0.0.1 --node node1 --port 6443",
		RunE: func(c *cobra.Command, _ []string) error {
			agent.Log = slog.New(slog.NewTextHandler(a.Err, nil))
			return agent.Run(c.Context())
		},
	}
	c.Flags().StringVar(&agent.Node, "node", "", "name of this node")
	c.Flags().StringVar(&agent.Address, "address", "", "address of this node")
	c.Flags().IntVar(&agent.Port, "port", config.DefaultPort, "port of its API server")
	c.Flags().StringVar(&agent.Kubeconfig, "kubeconfig", "/etc/kubernetes/admin.conf", "kubeconfig that may read the settings")
	return c
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/ha"
)

type haEnabled struct {
	From     string `json:"from"`
	Endpoint string `json:"endpoint"`
	Address  string `json:"virtualAddress,omitempty"`
	stepsRun
}

func newHAEnable(a *app) *cobra.Command {
	f := stepFlags{onFailure: workflow.Rollback, pods: true}
	var address, endpoint string
	c := &cobra.Command{
		Use: "enable", Short: "Give a cluster with one control-plane node an endpoint, so that it can have more",
		Long: "Without --high-availability-vip and --control-plane-endpoint, init creates a cluster that is reached at the address of its control-plane\n" +
			"node. This command gives it a virtual address, which ocadm moves between control-plane nodes, or the endpoint of a load balancer that\n" +
			"forwards to this node, or both. It changes the certificates of the API server and of the depot, the settings of Kubernetes, the\n" +
			"kubeconfigs of this node, and the address of clouds that are reached here. Nothing stops: the former address still answers.\n\n" +
			"Then run ocadm move --follow ADDRESS on every worker, and ocadm join --control-plane on two more machines.\n\n" +
			"If the endpoint does not answer, the command undoes everything but the new name in the certificate. If it fails later, or is\n" +
			"interrupted, run it again: it continues.",
		Example: "  ocadm ha enable --high-availability-vip 192.0.2.100 --dry-run\n  ocadm ha enable --high-availability-vip 192.0.2.100\n\n" +
			"  # a load balancer\n  ocadm ha enable --control-plane-endpoint kubernetes.example.org:6443",
		RunE: func(c *cobra.Command, _ []string) error {
			ip, err := netip.ParseAddr(address)
			switch {
			case address == "" && endpoint == "":
				return misused("neither --high-availability-vip nor --control-plane-endpoint is given", "ocadm ha enable --high-availability-vip ADDRESS")
			case address != "" && (err != nil || !ip.Is4()):
				return misused(fmt.Sprintf("--high-availability-vip %s is not an IPv4 address", address), "ocadm ha enable --high-availability-vip ADDRESS")
			}
			if _, _, err := config.SplitEndpoint(endpoint, config.DefaultPort); err != nil {
				return misused(err.Error(), "ocadm ha enable --control-plane-endpoint HOST:PORT")
			}
			return a.enableHA(c, address, endpoint, f)
		},
	}
	f.add(c)
	c.Flags().StringVar(&address, "high-availability-vip", "", "free IPv4 address in the network of the nodes, which one of the control-plane nodes holds")
	c.Flags().StringVar(&endpoint, "control-plane-endpoint", "", "HOST[:PORT] of a load balancer, or a name of the virtual address")
	return c
}

func (a *app) enableHA(c *cobra.Command, address, endpoint string, f stepFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	m, err := ha.BeginEnable(ctx, h, address, endpoint)
	if err != nil {
		return err
	}
	out := haEnabled{From: m.From, Endpoint: h.Config.Cluster.ControlPlaneEndpoint, Address: address}
	question := fmt.Sprintf("This makes %s the address of the cluster and its clouds, in place of %s", m.To, m.From)
	if err := a.confirmSteps(c, f, "Nothing was changed", question); err != nil {
		return err
	}
	inputs := map[string]string{"--high-availability-vip": address, "--control-plane-endpoint": endpoint}
	if out.stepsRun, err = runSteps(ctx, a, h, "ha enable", inputs, ha.EnableSteps(), m, f); err != nil {
		return err
	}
	if out.Next, err = followers(ctx, m); err != nil {
		return err
	}
	out.Next = append(out.Next, "here, to print the command that joins another control-plane node: ocadm token create --print-join-command --control-plane")
	return a.printSteps(f, out, "Nothing to do: the endpoint is "+out.Endpoint)
}

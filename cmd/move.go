// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/move"
)

type nodeMoved struct {
	Node   string `json:"node"`
	From   string `json:"from"`
	To     string `json:"to"`
	Follow bool   `json:"follow,omitempty"`
	// Virtual is set when the virtual address of the control plane moves.
	Virtual bool `json:"virtualAddress,omitempty"`
	stepsRun
}

func newMove(a *app) *cobra.Command {
	var f stepFlags
	var follow, virtual bool
	c := &cobra.Command{
		Use: "move ADDRESS", Short: "Give this node another address",
		Long: "Gives this node ADDRESS. The machine must already have this address, preferably beside the present one. The command replaces the\n" +
			"present address in files and objects, restarts what uses it, and waits until the node is Ready. On the only control-plane node of a cluster, it also\n" +
			"changes the certificates, etcd, the settings of Kubernetes, and the clouds that are reached there. Virtual machines and pods of the pod\n" +
			"network keep running.\n\n" +
			"When the control plane has moved, run ocadm move --follow ADDRESS on every worker, with the address of the control plane.\n\n" +
			"With --virtual-address, on any control-plane node, the virtual address of the control plane becomes ADDRESS, which no machine may have.\n" +
			"Both addresses work until every worker has followed; then run the command again to remove the former one.\n\n" +
			"If it is interrupted, run it again: it continues. To go back, move to the former address. You cannot move one of several control-plane\n" +
			"nodes, or one with a virtual address: use ocadm reset and ocadm join --control-plane. The command does not change the network settings\n" +
			"of the machine, /etc/hosts, or a host.conf that ocadm did not write.",
		Example: "  # the machine has both addresses\n  ip address add 10.0.1.5/24 dev eth0\n  ocadm move 10.0.1.5 --dry-run\n  ocadm move 10.0.1.5\n\n" +
			"  # the control plane has moved to 10.0.1.5; on every worker\n  ocadm move --follow 10.0.1.5\n\n" +
			"  # another virtual address\n  ocadm move --virtual-address 10.0.1.100",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			to := args[0]
			if ip, err := netip.ParseAddr(to); err == nil {
				to = ip.Unmap().String()
			} else if !follow || len(validation.IsDNS1123Subdomain(to)) > 0 {
				return misused(fmt.Sprintf("%q is not an IP address", to), c.UseLine())
			}
			switch {
			case virtual && follow:
				return misused("--virtual-address and --follow exclude each other", c.UseLine())
			case virtual:
				return a.moveVirtual(c, to, f)
			}
			return a.move(c, to, follow, f)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&follow, "follow", false, "ADDRESS, an IP address or a name, belongs to the control plane, which has moved; this worker keeps its own")
	c.Flags().BoolVar(&virtual, "virtual-address", false, "ADDRESS becomes the virtual address of the control plane; nodes keep their own")
	c.AddCommand(newMovePart(a))
	return c
}

func (a *app) move(c *cobra.Command, to string, follow bool, f stepFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	m, err := move.Begin(ctx, h, to, follow, time.Now())
	if err != nil {
		return err
	}
	out := nodeMoved{Node: h.Config.Node.Name, From: m.From, To: m.To, Follow: follow, stepsRun: noSteps()}
	if m.Done(ctx) {
		out.DryRun = f.dryRun
		return a.printMoved(f, out)
	}
	question := fmt.Sprintf("This moves node %s from %s to %s and restarts its kubelet", out.Node, m.From, m.To)
	switch {
	case follow:
		question = fmt.Sprintf("This points node %s to the control plane at %s in place of %s, and restarts its kubelet", out.Node, m.To, m.From)
	case m.ControlPlane:
		question += " and the control plane, which does not answer for about a minute"
	}
	if err := a.confirmSteps(c, f, "Nothing was moved", question); err != nil {
		return err
	}
	inputs := map[string]string{"from": out.From, "to": out.To, "--follow": fmt.Sprint(follow)}
	if out.stepsRun, err = runSteps(ctx, a, h, "move", inputs, move.Steps(), m, f); err != nil {
		return m.Explain(err)
	}
	if m.ControlPlane && m.Endpoint {
		if out.Next, err = followers(ctx, m); err != nil {
			return err
		}
	}
	if !follow {
		out.Next = append(out.Next, "when everything works: remove "+out.From+" from this machine and from its network settings")
	}
	return a.printMoved(f, out)
}

// followers returns the commands to run on the other nodes after the control plane has moved.
func followers(ctx context.Context, m *move.Move) ([]string, error) {
	others, err := m.Others(ctx)
	return lists.Map(others, func(name string) string { return fmt.Sprintf("on %s: ocadm move --follow %s", name, m.To) }), err
}

func (a *app) printMoved(f stepFlags, out nodeMoved) error {
	return a.printSteps(f, out, "Nothing to do: the address is "+out.To)
}

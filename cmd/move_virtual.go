// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/nodefault"
	"yunion.io/x/ocadm/phases/move"
)

func (a *app) moveVirtual(c *cobra.Command, to string, f stepFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	m, err := move.BeginVirtual(ctx, h, to)
	if err != nil {
		return err
	}
	out := nodeMoved{Node: h.Config.Node.Name, From: m.From, To: m.To, Virtual: true, stepsRun: noSteps()}
	if m.Moved() {
		out.DryRun = f.dryRun
		return a.printMoved(f, out)
	}
	question := fmt.Sprintf("This makes %s the address of the cluster and its clouds, in place of %s", m.To, m.From)
	if err := a.confirmSteps(c, f, "Nothing was moved", question); err != nil {
		return err
	}
	f.pods = true
	inputs := map[string]string{"from": out.From, "to": out.To, "--virtual-address": "true"}
	if out.stepsRun, err = runSteps(ctx, a, h, "move", inputs, move.VirtualSteps(), m, f); err != nil {
		return m.Explain(err)
	}
	out.Next = m.Followers()
	return a.printMoved(f, out)
}

// newMovePart returns the command that runs on the other control-plane nodes when the virtual address moves.
func newMovePart(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "part PART FROM TO", Short: "Update this control-plane node when the virtual address moves", Hidden: true,
		Long: "Adds an address to the certificates of this node, or writes it into its files. The pod ocadm-move runs it; it needs the root\n" +
			"file system of the machine.",
		Example: "  ocadm move part certificates 10.0.0.100 10.0.0.200\n  ocadm move part files 10.0.0.100 10.0.0.200",
		Args:    cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			if err := nodefault.Enter(); err != nil {
				return err
			}
			h, err := controlPlaneHost(c.Context(), false)
			if err != nil {
				return err
			}
			_, err = runSteps(c.Context(), a, h, "move part", map[string]string{}, move.PartSteps(move.Part(args[0]), args[1], args[2]), h, stepFlags{})
			return err
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

func newComponentScale(a *app) *cobra.Command {
	var f cloudFlags
	c := &cobra.Command{
		Use:   "scale COMPONENT REPLICAS",
		Short: "Set the number of pods of a component",
		Long: "Sets replicas in the spec of the component. A component whose data has one writer has one pod; an agent has one on each node with its\n" +
			"label. To stop a component, disable it.",
		Example: "  ocadm component scale region 2 --wait\n  ocadm component scale region 1",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: componentNames, //nolint:mnd // COMPONENT and REPLICAS
		RunE: func(c *cobra.Command, args []string) error {
			ref, err := componentRef(&f, args[0])
			if err != nil {
				return err
			}
			replicas, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || replicas < 1 {
				return misused(fmt.Sprintf("%q is not a positive number", args[1]), "to stop a component: ocadm component disable "+args[0])
			}
			one, _ := catalog.Get(args[0])
			if why := resolve.Unscalable(catalog.All(), one, int32(replicas)); why != "" {
				return misused("component "+args[0]+" cannot be scaled: "+why, "ocadm cluster status")
			}
			return a.change(c, &f, ref, cluster.ComponentChange{"replicas": replicas})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), false, waitUsage)
	return c
}

// change makes a change of a component's block, prints it, and waits for it if the user asked for that.
func (a *app) change(c *cobra.Command, f *cloudFlags, ref cluster.ComponentRef, change cluster.ComponentChange) error {
	return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
		lines, err := ref.Apply(ctx, k, change)
		if err != nil {
			return err
		}
		if !f.wait {
			return a.printOutcome(f, f.changed("configured", lines))
		}
		a.say(lines)
		if err := ref.Unpaused(ctx, k); err != nil {
			return err
		}
		return a.waitForCloud(ctx, k, f)
	})
}

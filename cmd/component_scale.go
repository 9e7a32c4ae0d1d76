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
	return changesComponent(a, &f, &cobra.Command{
		Use:   "scale COMPONENT REPLICAS",
		Short: "Set the number of pods of a component",
		Long: "Sets replicas in the spec of the component. A component whose data has one writer has one pod; an agent has one on each node with its\n" +
			"label. To stop a component, disable it.",
		Example: "  ocadm component scale region 2 --wait\n  ocadm component scale region 1",
		Args:    cobra.ExactArgs(2), //nolint:mnd // COMPONENT and REPLICAS
	}, func(c *cobra.Command, ref cluster.ComponentRef, args []string) error {
		replicas, err := strconv.ParseInt(args[0], 10, 32)
		if err != nil || replicas < 1 {
			return misused(fmt.Sprintf("%q is not a positive number", args[0]), "to stop a component: ocadm component disable "+ref.Name)
		}
		one, _ := catalog.Get(ref.Name)
		if why := resolve.Unscalable(catalog.All(), one, int32(replicas)); why != "" {
			return misused("component "+ref.Name+" cannot be scaled: "+why, "ocadm cluster status")
		}
		return a.change(c, &f, ref, cluster.ComponentChange{"replicas": replicas})
	})
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

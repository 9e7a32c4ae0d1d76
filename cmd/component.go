// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	reference "github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// newComponent groups the commands that work on one component of the cloud.
func newComponent(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "component",
		Short: "Update, scale, configure, restart, enable and inspect one component",
		Long: "Works on one component, by the name that \"ocadm cluster status\" shows. Changes go into the OnecloudCluster, or into the ConfigMap\n" +
			"of the component, so they are permanent.\n\n" + settingsHelp,
		Example: "  ocadm component update region --version v4.0.2\n  ocadm component logs region --follow",
	}, newComponentUpdate(a), newComponentScale(a), newComponentOptions(a), newComponentRestart(a), newComponentSwitch(a, "enable", false),
		newComponentSwitch(a, "disable", true), newComponentLogs(a), newComponentExec(a), newComponentDebug(a))
}

// componentRef finds a component by name; a nested block ("hostagent.SdnAgent") has two elements.
func componentRef(f *cloudFlags, name string) (cluster.ComponentRef, error) {
	c, ok := catalog.Get(name)
	if !ok {
		known := catalog.Names(func(component.Component) bool { return true })
		return cluster.ComponentRef{}, misspelt(fmt.Sprintf("%q is not a component", name), name, known, "ocadm operator components lists them")
	}
	return cluster.ComponentRef{Cloud: f.key(), Name: name, Block: c.SpecPath(), Label: c.Workload.PodLabels[v1alpha1.LabelComponent]}, nil
}

// misspelt returns the error for an unknown name. Its remedy suggests the nearest known name, if one is near.
func misspelt(cause, name string, known []string, otherwise string) error {
	if near, ok := nearest.To(name, known); ok {
		otherwise = "did you mean " + near + "?"
	}
	return misused(cause, otherwise)
}

// componentNames completes the first argument.
func componentNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return catalog.Names(func(component.Component) bool { return len(args) == 0 }), cobra.ShellCompDirectiveNoFileComp
}

// changesComponent completes a command that changes the component that its first argument names. run gets the other arguments.
func changesComponent(a *app, f *cloudFlags, c *cobra.Command, run func(c *cobra.Command, ref cluster.ComponentRef, args []string) error) *cobra.Command {
	c.ValidArgsFunction = componentNames
	c.RunE = func(c *cobra.Command, args []string) error {
		ref, err := componentRef(f, args[0])
		if err != nil {
			return err
		}
		return run(c, ref, args[1:])
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), false, waitUsage)
	return c
}

func newComponentUpdate(a *app) *cobra.Command {
	var f cloudFlags
	var version, repository, image string
	var follow bool
	c := changesComponent(a, &f, &cobra.Command{
		Use:   "update COMPONENT",
		Short: "Move one component to another version, repository or image",
		Long: "Sets the tag, the repository or the whole image of one component. The rest of the cloud does not change. The version may be older.\n" +
			"--follow removes these values, so that the component uses the version and repository of the cloud again.",
		Example: "  ocadm component update region --version v4.0.2 --wait\n" +
			"  ocadm component update region --repository 192.168.0.1:5000/yunionio --version lzx-dev\n" +
			"  ocadm component update region --follow",
		Args: cobra.ExactArgs(1),
	}, func(c *cobra.Command, ref cluster.ComponentRef, _ []string) error {
		change := cluster.ComponentChange{}
		for field, given := range map[string]string{"tag": version, "repository": repository, "image": image} {
			if given != "" {
				change[field] = given
			}
		}
		switch {
		case follow && len(change) > 0:
			return misused("--follow removes what the other flags set", "give either --follow or the other flags")
		case follow:
			change = cluster.Follow()
		case len(change) == 0:
			return misused("there is nothing to update", "give --version, --repository, --image or --follow")
		case image != "" && len(change) > 1:
			return misused("--image is a complete reference", "give either --image, or --repository and --version")
		case image+repository != "":
			if _, err := reference.ParseReference(cmp.Or(image, repository+"/"+ref.Name), reference.WeakValidation); err != nil {
				return finding.Errorf("OCA-2501", "The name of an image is invalid", "for example --image 192.168.0.1:5000/yunionio/region:v4.0.3", "%w", err)
			}
		}
		return a.change(c, &f, ref, change)
	})
	c.Flags().StringVar(&version, "version", "", "tag of the component's image")
	c.Flags().StringVar(&repository, "repository", "", "registry and path of the component's image")
	c.Flags().StringVar(&image, "image", "", "complete image of the component, REPOSITORY/NAME:TAG")
	c.Flags().BoolVar(&follow, "follow", false, "use the version and repository of the cloud again")
	return c
}

const waitUsage = "wait until every component of the cloud is available"

// waitSeen prints what changed, and waits for a change that the cloud's resource does not show.
func (a *app) waitSeen(ctx context.Context, k client.WithWatch, f *cloudFlags, lines []string, seen func(cluster.Status) bool) error {
	a.say(lines)
	return a.waitFor(ctx, k, f, func(report func(cluster.Status)) error { return cluster.WaitSeen(ctx, k, f.key(), seen, report) })
}

func newComponentRestart(a *app) *cobra.Command {
	var f cloudFlags
	return changesComponent(a, &f, &cobra.Command{
		Use:   "restart COMPONENT",
		Short: "Restart the pods of a component, one after another",
		Long: "Replaces the pods of the component one after another, so that a service with several replicas stays available. Restarting a host\n" +
			"agent does not restart virtual machines.",
		Example: "  ocadm component restart region --wait\n  ocadm component restart host",
		Args:    cobra.ExactArgs(1),
	}, func(c *cobra.Command, ref cluster.ComponentRef, _ []string) error {
		return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
			lines, seen, err := ref.Restart(ctx, k, time.Now())
			if err != nil {
				return err
			}
			if !f.wait {
				return a.printOutcome(&f, f.outcome("restarted", lines...).of("Component", ref.Name))
			}
			return a.waitSeen(ctx, k, &f, lines, seen)
		})
	})
}

func newComponentSwitch(a *app, verb string, disable bool) *cobra.Command {
	var f cloudFlags
	var yes bool
	short, long := "Enable a component", "Sets disable: false in the spec of the component. If it ran before, it reuses its data."
	if disable {
		short, long = "Disable a component and keep its data", "Sets disable: true in the spec of the component. The operator deletes its workload. Databases and volumes stay.\n"+
			"Asks first if other components need it."
	}
	c := changesComponent(a, &f, &cobra.Command{
		Use: verb + " COMPONENT", Short: short, Long: long,
		Example: "  ocadm component " + verb + " glance\n  ocadm component " + verb + " notify --wait",
		Args:    cobra.ExactArgs(1),
	}, func(c *cobra.Command, ref cluster.ComponentRef, _ []string) error {
		if len(ref.Block) > 1 && ref.Block[0] != "components" {
			return misused(fmt.Sprintf("%s cannot be enabled or disabled alone: it is part of spec.%s", ref.Name, ref.Block[0]),
				"kubectl -n "+f.namespace+" edit oc "+f.name)
		}
		if needed := catalog.NeededBy(ref.Name); disable && len(needed) > 0 {
			question := ref.Name + " is needed by " + strings.Join(lists.Some(needed, 5), ", ")
			if err := a.confirm(c, yes, "Nothing was disabled")(question); err != nil {
				return err
			}
		}
		return a.change(c, &f, ref, cluster.ComponentChange{"disable": disable})
	})
	if disable {
		addYes(c.Flags(), &yes)
	}
	return c
}

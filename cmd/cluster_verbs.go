// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
	operatorphase "yunion.io/x/ocadm/phases/operator"
)

func newClusterCreate(a *app) *cobra.Command {
	var f cloudFlags
	var o cluster.Options
	c := &cobra.Command{
		Use:   "create --version VERSION",
		Short: "Create the cloud",
		Long: "Creates OnecloudCluster onecloud/default with the settings that init kept (ConfigMap onecloud/ocadm-cloud), and those given here.\n" +
			"A cloud that is there and agrees is left alone; one that differs is not changed, and the differences are named. In a namespace of its\n" +
			"own (--namespace) a cloud has its own settings, and the operator is given rights there.",
		Example: "  ocadm cluster create --version v4.0.3 --wait\n  ocadm cluster create --version v4.0.3 --edition ee",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			e, err := edition(c.Flags())
			if err != nil {
				return err
			}
			for _, old := range []string{"upgrade-from-v2", "cluster-region-id", "cluster-zone-id"} {
				if c.Flags().Changed(old) {
					a.warn("--%s has no effect any more", old)
				}
			}
			o.Edition = e
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { return a.createCloud(ctx, k, &f, o) })
		},
	}
	fs := c.Flags()
	f.add(fs, "table", "json", "yaml")
	f.addWait(fs, false, "wait until every component is available")
	fs.StringVar(&o.Version, "version", "", "release of the cloud, for example v4.0.3")
	fs.StringVar(&o.ImageRepository, "image-repository", "", "registry and path of the images, instead of what init was given")
	fs.StringVar(&o.Region, "region", "", "name of the region, instead of what init was given")
	fs.StringVar(&o.Zone, "zone", "", "name of the first zone, instead of what init was given")
	fs.StringVar(&o.ProductVersion, "product-version", "", "set of components, instead of what init was given: FullStack, CMP, Edge, LightEdge or AI")
	fs.StringVar(&o.LoadBalancerEndpoint, "load-balancer-endpoint", "", "address by which people and hosts reach the cloud, instead of what init was given")
	fs.BoolVar(&o.DisableResourceManagement, "disable-resource-management", false, "give the components no resource requests and limits")
	fs.BoolVar(&o.UseHyperImage, "use-hyper-image", false, "run most components from one image")
	fs.String("edition", "", "ce, ce/support or ee, instead of what init was given")
	fs.Bool("use-ee", false, "the same as --edition ee")
	fs.Bool("upgrade-from-v2", false, "")
	fs.String("cluster-region-id", "", "")
	fs.String("cluster-zone-id", "", "")
	for _, old := range []string{"use-ee", "upgrade-from-v2", "cluster-region-id", "cluster-zone-id"} {
		hide(fs, old)
	}
	return c
}

func (a *app) createCloud(ctx context.Context, k client.WithWatch, f *cloudFlags, given cluster.Options) error {
	o, err := cluster.LoadSettings(ctx, k, f.namespace)
	if err != nil {
		return err
	}
	o.Name, o.Namespace = f.name, f.namespace
	overlay(&o, given)
	rights, err := operatorphase.Serve(ctx, k, f.namespace)
	for _, change := range rights.Changed() {
		fmt.Fprintln(a.Err, change)
	}
	if err != nil {
		return err
	}
	action, err := cluster.Create(ctx, k, o)
	if err != nil {
		return err
	}
	if !f.wait {
		return a.printResult(f, string(action))
	}
	fmt.Fprintf(a.Err, "Cluster %s %s\n", f.name, action)
	return a.waitForCloud(ctx, k, f)
}

// overlay puts what was given over what init kept.
func overlay(o *cluster.Options, given cluster.Options) {
	for to, from := range map[*string]string{
		&o.Version: given.Version, &o.ImageRepository: given.ImageRepository, &o.Region: given.Region, &o.Zone: given.Zone,
		&o.ProductVersion: given.ProductVersion, &o.LoadBalancerEndpoint: given.LoadBalancerEndpoint, &o.Edition: given.Edition,
	} {
		if from != "" {
			*to = from
		}
	}
	o.DisableResourceManagement = o.DisableResourceManagement || given.DisableResourceManagement
	o.UseHyperImage = o.UseHyperImage || given.UseHyperImage
}

func newClusterStatus(a *app) *cobra.Command {
	var f cloudFlags
	c := &cobra.Command{
		Use:   "status",
		Short: "Show every component: state, version, what it waits for",
		Long:  "Shows what the operator says of the cloud: each component's state and version, and of those that are not there yet what they wait for.",
		Example: "  ocadm cluster status\n  ocadm cluster status --wait --timeout 10m\n" +
			"  ocadm cluster status -o json | jq -r '.components[] | select(.state != \"Available\") | .name'",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				if f.wait {
					return a.waitForCloud(ctx, k, &f)
				}
				return a.printStatus(ctx, k, &f)
			})
		},
	}
	f.add(c.Flags(), "table", "json", "yaml")
	f.addWait(c.Flags(), false, "wait until every component is available")
	return c
}

func newClusterUpdate(a *app) *cobra.Command {
	var f cloudFlags
	var u cluster.Update
	var noLimits bool
	c := &cobra.Command{
		Use:   "update [--version VERSION]",
		Short: "Move cloud and operator to another version or registry",
		Long: "Updates the operator first (with --operator-version or --image-repository), waits until the new one runs, and then changes the cloud.\n" +
			"To go back, give the older version.",
		Example: "  ocadm cluster update --version v4.0.3 --wait\n" +
			"  ocadm cluster update --operator-version v1.2.0 --operator-only\n" +
			"  ocadm cluster update --image-repository 192.168.0.1:5000/yunionio",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			e, err := edition(c.Flags())
			if err != nil {
				return err
			}
			u.Edition = e
			if c.Flags().Changed("disable-resource-management") {
				u.DisableResourceManagement = &noLimits
			}
			if err := somethingToUpdate(u); err != nil {
				return err
			}
			// The operator must run before the cloud changes, so that much is always waited for.
			return withKube(c.Context(), f.kubeconfig, f.timeout, func(ctx context.Context, k client.WithWatch) error {
				return a.updateCloud(ctx, k, &f, u)
			})
		},
	}
	fs := c.Flags()
	f.add(fs, "table", "json", "yaml")
	f.addWait(fs, false, "wait until every component runs the new version")
	fs.StringVar(&u.Version, "version", "", "release of the cloud")
	fs.StringVar(&u.OperatorVersion, "operator-version", "", "version of the operator")
	fs.StringVar(&u.OperatorImage, "operator-image", "", "the operator's image, REPOSITORY:TAG, instead of one made of the two others")
	fs.StringVar(&u.ImageRepository, "image-repository", "", "registry and path of the images of cloud and operator")
	fs.BoolVar(&u.OperatorOnly, "operator-only", false, "update the operator and leave the cloud as it is")
	fs.BoolVar(&noLimits, "disable-resource-management", false, "give the components no resource requests and limits")
	fs.String("edition", "", "ce, ce/support or ee")
	fs.Bool("use-ee", false, "the same as --edition ee")
	fs.Bool("use-ce", false, "the same as --edition ce")
	hide(fs, "use-ee")
	hide(fs, "use-ce")
	return c
}

func somethingToUpdate(u cluster.Update) error {
	if u.OperatorOnly {
		if u.OperatorVersion == "" && u.ImageRepository == "" && u.OperatorImage == "" {
			return misused("--operator-only changes only the operator, and nothing was given for it", "give --operator-version, --operator-image or --image-repository")
		}
		return nil
	}
	if u.Version == "" && u.OperatorVersion == "" && u.OperatorImage == "" && u.ImageRepository == "" && u.Edition == "" && u.DisableResourceManagement == nil {
		return misused("there is nothing to update", "give --version, --image-repository, --operator-version or --edition")
	}
	return nil
}

func (a *app) updateCloud(ctx context.Context, k client.WithWatch, f *cloudFlags, u cluster.Update) error {
	s := a.story()
	u.Key = f.key()
	u.Report = s.Waiting
	if u.OperatorVersion == version.Version { // then this program has the definition and the rights that belong to it
		u.Manifests = func(image string) ([]*unstructured.Unstructured, error) {
			watched, err := operatorphase.Watched(ctx, k)
			if err != nil {
				return nil, err
			}
			return operatorphase.Objects(image, watched...)
		}
	}
	done, err := u.Apply(ctx, k)
	s.Close()
	if err != nil {
		return err
	}
	action := "unchanged"
	if len(done.Changes) > 0 {
		action = "configured"
	}
	if !f.wait || u.OperatorOnly {
		return a.printResult(f, action, done.Changes...)
	}
	for _, change := range done.Changes {
		fmt.Fprintln(a.Err, change)
	}
	return a.waitForCloud(ctx, k, f)
}

func newClusterRCAdmin(a *app) *cobra.Command {
	var f cloudFlags
	c := &cobra.Command{
		Use:   "rcadmin",
		Short: "Print the environment of the cloud's administrator",
		Long: "Prints eight variables for the cloud's client, climc, and for whatever else logs in by them. The output holds the administrator's\n" +
			"password; with it and the name sysadmin one also logs in at the web console.",
		Example: "  source <(ocadm cluster rcadmin)\n" +
			"  (umask 077; ocadm cluster rcadmin > rc_admin)",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				vars, err := cluster.RCAdmin(ctx, k, f.key())
				if err != nil {
					return err
				}
				return ui.Print(a.Out, f.output.String(), vars, func(w io.Writer) error {
					_, err := io.WriteString(w, cluster.Exports(vars))
					return err
				})
			})
		},
	}
	f.add(c.Flags(), "shell", "json", "yaml")
	return c
}

func newClusterDelete(a *app) *cobra.Command {
	var f cloudFlags
	var data, yes bool
	c := &cobra.Command{
		Use:   "delete",
		Short: "Delete the cloud; its data stays unless told otherwise",
		Long: "Deletes the OnecloudCluster and waits until the operator has released everything that belongs to it.\n" +
			"Kubernetes and the operator stay. Databases, volumes and the generated passwords stay, too, unless --delete-data is given: a cloud that is\n" +
			"created again under the same name goes on with them.",
		Example: "  ocadm cluster delete --yes\n  ocadm cluster delete --delete-data",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if !yes {
				question := fmt.Sprintf("Delete cloud %s and keep its data? Type its name to go on:", f.key())
				if data {
					question = fmt.Sprintf("Delete cloud %s with all its databases and volumes? Type its name to go on:", f.key())
				}
				sure, err := ui.Confirm(c.Context(), a.In, a.Err, question, f.name, "--yes")
				if err != nil {
					return err
				}
				if !sure {
					return a.printResult(&f, "kept")
				}
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { return a.deleteCloud(ctx, k, &f, data) })
		},
	}
	f.add(c.Flags(), "table", "json", "yaml")
	f.addWait(c.Flags(), true, "wait until everything is released")
	c.Flags().BoolVar(&data, "delete-data", false, "delete databases, accounts and volumes, too")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (a *app) deleteCloud(ctx context.Context, k client.WithWatch, f *cloudFlags, data bool) error {
	there, err := cluster.Delete(ctx, k, f.key(), data)
	if err != nil {
		return err
	}
	if !there {
		return a.printResult(f, "not there")
	}
	if f.wait {
		s := a.story()
		err := cluster.WaitGone(ctx, k, f.key(), func(why string) { s.Waiting("the end of the cloud", why) })
		s.Close()
		if err != nil {
			return err
		}
	}
	return a.printResult(f, "deleted")
}

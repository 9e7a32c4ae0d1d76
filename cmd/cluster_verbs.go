// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/config"
	operatorphase "yunion.io/x/ocadm/phases/operator"
)

func newClusterCreate(a *app) *cobra.Command {
	var f cloudFlags
	var o cluster.Options
	former := []string{"upgrade-from-v2", "cluster-region-id", "cluster-zone-id"}
	c := &cobra.Command{
		Use:   "create --version VERSION",
		Short: "Create the cloud",
		Long: "Creates the OnecloudCluster from the settings that init saved (ConfigMap onecloud/ocadm-cloud) and the flags.\n" +
			"If the cloud exists, nothing changes; if it differs from the flags, the command lists the differences and fails. In another namespace\n" +
			"(--namespace) a cloud has its own settings, and the operator gets permissions there.",
		Example: "  ocadm cluster create --version v4.0.3 --wait\n  ocadm cluster create --version v4.0.3 --edition ee",
		RunE: func(c *cobra.Command, _ []string) error {
			for _, old := range former {
				if c.Flags().Changed(old) {
					a.warn("--%s no longer has an effect", old)
				}
			}
			if err := checkVersion(c, o.Version); err != nil {
				return err
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { return a.createCloud(ctx, k, &f, o) })
		},
	}
	f.add(a, c, map[string]string{
		"version": "cloud.version", "image-repository": "cluster.imageRepository", "region": "cloud.region", "zone": "cloud.zone", "edition": "cloud.edition",
		"product-version": "cloud.productVersion", "profile": "cloud.profile", "load-balancer-endpoint": "cloud.loadBalancerEndpoint",
		"disable-resource-management": "cloud.disableResourceManagement", "use-hyper-image": "cloud.useHyperImage",
	}, "table", "json", "yaml")
	fs := c.Flags()
	f.addWait(fs, false, "wait until every component is available")
	fs.StringVar(&o.Version, "version", "", "release of the cloud, for example v4.0.3")
	fs.StringVar(&o.ImageRepository, "image-repository", "", "registry and path of the images; overrides the value saved by init")
	fs.StringVar(&o.Region, "region", "", "name of the region; overrides the value saved by init")
	fs.StringVar(&o.Zone, "zone", "", "name of the first zone; overrides the value saved by init")
	fs.Var(ui.NewChoice(&o.ProductVersion, config.Find("cloud.productVersion").Choices...), "product-version",
		"set of components (FullStack, CMP, Edge, LightEdge or AI); overrides the value saved by init")
	fs.Var(ui.NewChoice(&o.Profile, config.Find("cloud.profile").Choices...), "profile",
		"copies of the services: small runs one of each, ha two on different nodes; overrides the value saved by init")
	fs.StringVar(&o.LoadBalancerEndpoint, "load-balancer-endpoint", "", "address at which users and hosts reach the cloud; overrides the value saved by init")
	fs.BoolVar(&o.DisableResourceManagement, "disable-resource-management", false, "set no resource requests and limits on the components")
	fs.BoolVar(&o.UseHyperImage, "use-hyper-image", false, "run most components from one combined image")
	addEdition(fs, &o.Edition, "edition; overrides the value saved by init")
	fs.Bool("upgrade-from-v2", false, "")
	fs.String("cluster-region-id", "", "")
	fs.String("cluster-zone-id", "", "")
	for _, old := range former {
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
	if err := a.serve(ctx, k, f); err != nil {
		return err
	}
	action, err := cluster.Create(ctx, k, o)
	if err != nil {
		return err
	}
	if !f.wait {
		return a.printOutcome(f, f.outcome(string(action)))
	}
	fmt.Fprintf(a.Err, "Cluster %s %s\n", f.name, action)
	return a.waitForCloud(ctx, k, f)
}

// serve has the operator manage the namespace of a cloud, and prints what that changed.
func (a *app) serve(ctx context.Context, k client.WithWatch, f *cloudFlags) error {
	rights, err := operatorphase.Serve(ctx, k, f.namespace)
	a.say(lists.Map(rights.Changed(), kube.Change.String))
	return err
}

// overlay overrides the settings that init saved with the flags.
func overlay(o *cluster.Options, given cluster.Options) {
	for to, from := range map[*string]string{
		&o.Version: given.Version, &o.ImageRepository: given.ImageRepository, &o.Region: given.Region, &o.Zone: given.Zone,
		&o.ProductVersion: given.ProductVersion, &o.Profile: given.Profile, &o.LoadBalancerEndpoint: given.LoadBalancerEndpoint, &o.Edition: given.Edition,
	} {
		if from != "" {
			*to = from
		}
	}
	o.DisableResourceManagement = o.DisableResourceManagement || given.DisableResourceManagement
	o.UseHyperImage = o.UseHyperImage || given.UseHyperImage
}

// updateFlags are the flags of "cluster update".
type updateFlags struct {
	cloudFlags
	cluster.Update
	noLimits, downgrade, atOnce, rehearse, dryRun, noBackup bool
	onFailure                                               string
}

func newClusterUpdate(a *app) *cobra.Command {
	var f updateFlags
	c := &cobra.Command{
		Use:   "update",
		Short: "Move the cloud and the operator to another version or registry",
		Long: "Updates the operator first (with --operator-version or --image-repository), waits until the new operator runs, and then changes the\n" +
			"cloud. A new operator by itself changes nothing in a running cloud: this command applies what the new operator does differently, even\n" +
			"without --version. To see these changes beforehand: ocadm cluster diff.\n\n" +
			"An operation (ocadm operation) moves the cloud: it runs checks before anything changes, copies the databases, then moves identity,\n" +
			"region, the other services and the agents one after another, each only when the ones before it serve. If one fails, everything returns\n" +
			"to the previous release; with --on-failure=pause, the operation waits for you instead. --wait follows the operation to its end, but no\n" +
			"longer than --timeout; run the command again to follow it further. Without --wait, the command ends when the checks are done and the\n" +
			"nodes have the images, and the operation continues by itself. A cloud whose identity service has never served has nothing to lose,\n" +
			"and changes at once.\n\n" +
			"--at-once is for development: all components move as soon as those before them serve, without checks or copies, and nothing is reverted.\n\n" +
			"--dry-run does not change the cloud: it runs the checks and pulls the images, as ocadm operation check --version does.\n\n" +
			"--rehearse changes nothing: the services of the new version migrate copies of the databases, separately from the cloud, and the command\n" +
			"reports which migrations fail, how long each takes and how much space it needs.\n\n" +
			"If the version of the operator is that of this program, run the command as root on a control-plane node: it imports the program there as\n" +
			"the image and stores it in the depot, from which the other nodes pull it. Without a depot, they pull it from a registry.",
		Example: "  ocadm cluster update --version v4.0.4 --dry-run\n  ocadm cluster update --version v4.0.4 --rehearse --wait\n  ocadm cluster update --version v4.0.4 --wait\n" +
			"  ocadm cluster update\n" +
			"  ocadm cluster update --operator-version " + version.Version + " --operator-only\n" +
			"  ocadm cluster update --image-repository 192.168.0.1:5000/yunionio\n  ocadm cluster update --profile ha --wait",
		RunE: func(c *cobra.Command, _ []string) error { return a.update(c, &f) },
	}
	f.add(a, c, map[string]string{
		"version": "cloud.version", "image-repository": "cluster.imageRepository", "edition": "cloud.edition", "operator-version": "cloud.operatorVersion",
		"operator-image": "cloud.operatorImage", "profile": "cloud.profile", "disable-resource-management": "cloud.disableResourceManagement",
	}, "table", "json", "yaml", "jsonl")
	fs := c.Flags()
	f.addWait(fs, false, "wait until every component runs the new version")
	fs.StringVar(&f.Version, "version", "", "release of the cloud")
	fs.BoolVar(&f.atOnce, "at-once", false, "move all components at once, without checks, copies of the databases or rollback; for development")
	fs.Bool("waves", true, "")
	hide(fs, "waves") // a former flag
	fs.BoolVar(&f.rehearse, "rehearse", false, "run the migrations on copies of the databases, and change nothing")
	fs.BoolVar(&f.dryRun, "dry-run", false, "run the checks and have the nodes pull the images, without changing the cloud")
	c.MarkFlagsMutuallyExclusive("rehearse", "dry-run")
	fs.BoolVar(&f.downgrade, "allow-downgrade", false, "move to an earlier release, although its services may lose data")
	fs.BoolVar(&f.noBackup, "no-backup", false, "do not copy the databases; a failed update leaves its changes in them")
	addOnFailure(fs, &f.onFailure)
	fs.StringVar(&f.OperatorVersion, "operator-version", "", "version of the operator")
	fs.StringVar(&f.OperatorImage, "operator-image", "", "operator image, REPOSITORY:TAG; overrides --operator-version and --image-repository")
	fs.StringVar(&f.ImageRepository, "image-repository", "", "registry and path of the images of the cloud and the operator")
	fs.BoolVar(&f.OperatorOnly, "operator-only", false, "update only the operator")
	fs.Var(ui.NewChoice(&f.Profile, config.Find("cloud.profile").Choices...), "profile",
		"copies of the services: small runs one of each, ha two on different nodes")
	fs.BoolVar(&f.noLimits, "disable-resource-management", false, "set no resource requests and limits on the components")
	addEdition(fs, &f.Edition, "edition of the cloud")
	return c
}

func (a *app) update(c *cobra.Command, f *updateFlags) error {
	if c.Flags().Changed("disable-resource-management") {
		f.DisableResourceManagement = &f.noLimits
	}
	if err := cmp.Or(checkVersion(c, f.Version), checkOperatorOnly(c, f.Update)); err != nil {
		return err
	}
	switch {
	case f.rehearse && f.noBackup:
		return misused("--no-backup cannot be combined with --rehearse, which works on copies of the databases", "leave it out")
	case f.rehearse:
		return a.rehearseUpdate(c, f)
	case f.dryRun:
		return a.checkUpdate(c, f)
	case f.atOnce && (f.downgrade || f.noBackup || f.onFailure != ""):
		return misused("--allow-downgrade, --no-backup and --on-failure cannot be combined with --at-once, which does not check, copy or revert anything", "leave them out")
	case !f.atOnce:
		f.Operation = &cluster.Operation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: f.name, Action: v1alpha1.ActionUpdate, Requester: requester(),
			OnFailure: v1alpha1.OnFailure(f.onFailure), Update: &v1alpha1.UpdateParameters{AllowDowngrade: f.downgrade, NoBackup: f.noBackup}}}
	}
	return f.within(c.Context(), f.timeout, func(ctx context.Context, k client.WithWatch) error {
		return a.updateCloud(ctx, k, &f.cloudFlags, f.Update)
	})
}

// checkVersion rejects a mistyped --version, and an empty one, which an unset variable of a script leaves.
func checkVersion(c *cobra.Command, given string) error {
	if given == "" && c.Flags().Changed("version") {
		return misused("--version is empty", "give a version, for example v4.0.3, or leave --version out")
	}
	if hint := version.CloudHint(given); hint != "" {
		return misused(fmt.Sprintf("%q is not the version of a release", given), hint)
	}
	return nil
}

// checkOperatorOnly rejects --operator-only without a change of the operator, or with one of the cloud, which would be ignored.
func checkOperatorOnly(c *cobra.Command, u cluster.Update) error {
	if !u.OperatorOnly {
		return nil
	}
	if u.OperatorVersion == "" && u.ImageRepository == "" && u.OperatorImage == "" {
		return misused("--operator-only needs a change of the operator", "give --operator-version, --operator-image or --image-repository")
	}
	for _, name := range []string{"version", "edition", "profile", "disable-resource-management"} {
		if typed(c, name) {
			return misused("--operator-only does not change the cloud, as --"+name+" would", "leave out one of them")
		}
	}
	return nil
}

func (a *app) updateCloud(ctx context.Context, k client.WithWatch, f *cloudFlags, u cluster.Update) error {
	s := a.story()
	u.Key = f.key()
	u.Report = s.Waiting
	u.Bring = func(image string) error {
		if u.OperatorImage != "" || images.Split(image).Tag != version.Version { // a registry has it
			return nil
		}
		return a.bringOperator(ctx, s, image)
	}
	if u.OperatorVersion == version.Version { // this program has the matching CRD and permissions
		u.Manifests = func(image string) ([]*unstructured.Unstructured, error) {
			return operatorphase.ObjectsFor(ctx, k, image)
		}
	}
	done, err := u.Apply(ctx, k)
	s.Close()
	if err != nil {
		return err
	}
	if done.Operation != "" {
		_, err := a.watchOperation(ctx, k, f, client.ObjectKey{Namespace: f.namespace, Name: done.Operation})
		if err != nil || f.output.String() == "jsonl" {
			return err
		}
	}
	if f.wait && !u.OperatorOnly {
		a.say(done.Changes)
		if err := cluster.Unpaused(ctx, k, f.key()); err != nil {
			return err
		}
		return a.waitForCloud(ctx, k, f)
	}
	if done.Operation != "" {
		return a.printOutcome(f, f.outcome("is moved by operation "+done.Operation, done.Changes...))
	}
	return a.printOutcome(f, f.changed("configured", done.Changes))
}

// addOnFailure adds the flag for what to do with an operation when a step fails.
func addOnFailure(fs *pflag.FlagSet, to *string) {
	fs.Var(ui.NewChoice(to, string(v1alpha1.OnFailureRollback), string(v1alpha1.OnFailurePause)), "on-failure",
		"what to do if a wave fails: rollback (default) or pause")
}

func newClusterRollback(a *app) *cobra.Command {
	var f cloudFlags
	var revision int
	var onFailure string
	var restoreDatabases, keepDatabases, dryRun bool
	c := &cobra.Command{
		Use:   "rollback",
		Short: "Roll the cloud back to an earlier release",
		Long: "Rolls the cloud back to the contents of an earlier release, the last wave first. The spec follows, so that it matches what runs. ocadm\n" +
			"cluster history lists the releases.\n\n" +
			"If tables have changed since then, the command refuses until you decide about the databases. --restore-databases restores those with\n" +
			"changed tables, from the copies that the update away from that release made. The cloud loses what was written since; the operation lists\n" +
			"it and saves it separately. --keep-databases leaves the databases as they are: services of the earlier release may not work with them.\n\n" +
			"Without --wait, the command ends when the checks are done and the nodes have the images, and the operation continues by itself.\n" +
			"--dry-run does not change the cloud: it names the release, runs the checks and pulls the images.",
		Example: "  ocadm cluster rollback --dry-run\n  ocadm cluster rollback --wait\n  ocadm cluster rollback --to 3 --restore-databases --wait",
		RunE: func(c *cobra.Command, _ []string) error {
			if revision < 0 {
				return misused(fmt.Sprintf("--to %d is not a revision", revision), "ocadm cluster history")
			}
			spec := v1alpha1.OnecloudOperationSpec{Cloud: f.name, Action: v1alpha1.ActionRollback, Requester: requester(), OnFailure: v1alpha1.OnFailure(onFailure),
				Rollback: &v1alpha1.RollbackParameters{Revision: revision, RestoreDatabases: restoreDatabases, KeepDatabases: keepDatabases}}
			if dryRun {
				spec.Action, f.wait = v1alpha1.ActionCheck, true
			}
			return f.within(c.Context(), f.timeout, func(ctx context.Context, k client.WithWatch) error { // the checks include image pulls
				return a.operate(ctx, k, &f, &cluster.Operation{Spec: spec})
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml", "jsonl")
	f.addWait(c.Flags(), false, "wait until every component runs the earlier release")
	c.Flags().BoolVar(&restoreDatabases, "restore-databases", false, "restore the databases whose tables have changed since")
	c.Flags().BoolVar(&keepDatabases, "keep-databases", false, "leave the databases as they are, although tables have changed since")
	c.MarkFlagsMutuallyExclusive("restore-databases", "keep-databases")
	c.Flags().IntVar(&revision, "to", 0, "revision of the release (default: the latest earlier one with different contents, except those of a reverted update or rollback)")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "run the checks and have the nodes pull the images, without changing the cloud")
	addOnFailure(c.Flags(), &onFailure)
	c.MarkFlagsMutuallyExclusive("dry-run", "on-failure")
	return c
}

func newClusterRCAdmin(a *app) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use:   "rcadmin",
		Short: "Print the administrator's login as environment variables",
		Long: "Prints the environment variables with which climc and other clients log in as the administrator of the cloud. The output contains the\n" +
			"password; the same password and the name sysadmin log in to the web console.",
		Example: "  source <(ocadm cluster rcadmin)\n" +
			"  (umask 077; ocadm cluster rcadmin > rc_admin)",
	}, "shell", func(ctx context.Context, k client.WithWatch, _ []string) ([]cluster.Variable, error) {
		return cluster.RCAdmin(ctx, k, f.key())
	}, func(p *page, vars []cluster.Variable) { p.WriteString(cluster.Exports(vars)) })
}

func newClusterDelete(a *app) *cobra.Command {
	var f cloudFlags
	var data, yes bool
	c := &cobra.Command{
		Use:   "delete",
		Short: "Delete the cloud and keep its data",
		Long: "Deletes the OnecloudCluster and waits until the operator has removed its objects. Kubernetes and the operator stay.\n" +
			"Databases, volumes and generated passwords stay, too, unless --delete-data is given. A new cloud with the same name reuses them.",
		Example: "  ocadm cluster delete --yes\n  ocadm cluster delete --delete-data",
		RunE: func(c *cobra.Command, _ []string) error {
			if !yes {
				question := fmt.Sprintf("Delete cloud %s and keep its data? Type its name to continue:", f.key())
				if data {
					question = fmt.Sprintf("Delete cloud %s with all its databases and volumes? Type its name to continue:", f.key())
				}
				if err := a.ask(c.Context(), question, f.name, "The cloud was not deleted", "run the command again and type "+f.name+", or add --yes"); err != nil {
					return err
				}
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { return a.deleteCloud(ctx, k, &f, data) })
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), true, "wait until all objects are gone")
	c.Flags().BoolVar(&data, "delete-data", false, "delete databases, accounts and volumes, too")
	addYes(c.Flags(), &yes)
	return c
}

func (a *app) deleteCloud(ctx context.Context, k client.WithWatch, f *cloudFlags, data bool) error {
	there, err := cluster.Delete(ctx, k, f.key(), data)
	if err != nil {
		return err
	}
	if !there {
		return a.printOutcome(f, f.outcome("not found"))
	}
	if f.wait {
		s := a.story()
		err := cluster.WaitGone(ctx, k, f.key(), func(why string) { s.Waiting("the cloud to be deleted", why) })
		s.Close()
		if err != nil {
			return err
		}
	}
	return a.printOutcome(f, f.outcome("deleted"))
}

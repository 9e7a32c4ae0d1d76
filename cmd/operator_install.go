// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/preflight"
)

func newOperatorInstall(a *app) *cobra.Command {
	var f runFlags
	list := phases.OperatorInstall()
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the operator, and optionally a cloud, on a cluster that another tool built",
		Long: "Installs the operator on any cluster with Kubernetes 1.30 or later. It needs a kubeconfig with an administrator's permissions, and neither root\n" +
			"nor a shell on a node. With --onecloud-version it also creates a cloud, as init does; without --mysql-host, with an embedded database.\n\n" +
			"Before it changes anything, it checks the cluster and reports all problems that would make the installation fail. If the cluster has\n" +
			"several storage classes, ingress classes or nodes to choose from, and none is the default, the report names the flag that chooses.\n\n" +
			"Run it again to update the operator, or after a failure: it continues where it stopped. Running it again after success changes nothing.\n" +
			"A new operator alone changes nothing in a running cloud.\n\nThe phases, in order; --skip-phases skips phases:\n\n" + phaseTable(list),
		Example: `  # only the operator; its image is in a registry that the nodes reach
  ocadm image push registry.example.org/you/ocadm:v1
  ocadm operator install --operator-image registry.example.org/you/ocadm:v1

  # the operator and a cloud with an embedded database
  ocadm operator install --onecloud-version v4.0.3 --storage-class ceph --controller-nodes node1,node2

  # the operator and a cloud on your own database server
  ocadm operator install --onecloud-version v4.0.3 --mysql-host 10.0.0.5 --mysql-password-file ./mysql

  # show what would be checked and changed
  ocadm operator install --onecloud-version v4.0.3 --dry-run`,
		RunE: func(c *cobra.Command, _ []string) error { return a.installOperator(c, list, f) },
	}
	addSettings(c.Flags(), config.ForInstall)
	addRunFlags(c.Flags(), &f)
	hide(c.Flags(), "on-failure") // the cluster keeps what was done
	return c
}

// installOperator runs the plan on the cluster of the kubeconfig. It keeps no journal: the cluster's state shows what is left to do.
func (a *app) installOperator(c *cobra.Command, list []host.Phase, f runFlags) error {
	const plan = "operator install"
	ctx := c.Context()
	cfg, err := a.loadSettings(c, config.ForInstall, f.config)
	if err != nil {
		return err
	}
	if f.run.Kubeconfig, err = kube.Kubeconfig(cfg.Cluster.Kubeconfig, os.Getenv); err != nil {
		return err
	}
	cfg.Run = f.run
	if err := config.Validate(cfg, config.ForInstall); err != nil {
		return err
	}
	h := host.ForCluster(cfg)
	if err := gatherCluster(ctx, h); err != nil {
		return err
	}
	preflight.Choose(cfg, h.Cluster)
	renderer := a.renderer(f)
	runner := workflow.Runner[*host.Host]{Plan: plan, Phases: list, Sink: a.redacted(renderer)}
	res, err := runner.Run(Killed(ctx), h, workflow.Options{DryRun: cfg.Run.DryRun, Skip: cfg.Run.SkipPhases, OnFailure: workflow.Keep, Stop: ctx})
	renderer.Close()
	if err != nil {
		return kube.Explain(err)
	}
	a.summary(f, res)
	if f.output.String() == "jsonl" && !cfg.Run.DryRun {
		return printResult(a, plan, map[string]string{"kubeconfig": cfg.Run.Kubeconfig, "image": cfg.OperatorImage()})
	}
	if !f.quiet && !cfg.Run.DryRun {
		fmt.Fprint(a.Err, afterInstall(cfg, hasCloud(ctx, h)))
	}
	return nil
}

func gatherCluster(ctx context.Context, h *host.Host) (err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	h.Cluster, err = host.GatherCluster(ctx, h)
	return kube.Explain(err)
}

func afterInstall(cfg *config.Config, cloudExists bool) string {
	switch {
	case cfg.Cloud.Version != "" || cloudExists:
		return "\nTo see the state of the cloud and to log in to it, run:\n\n  ocadm cluster status\n  ocadm cluster rcadmin\n\n"
	case cfg.AsksForCloud():
		return "\nTo create a cloud, run:\n\n  ocadm cluster create --version VERSION --wait\n\n"
	}
	image := ""
	if cfg.Cloud.OperatorImage != "" { // without the flag, the operator would get the image of the release
		image = " --operator-image " + cfg.Cloud.OperatorImage
	}
	return "\nTo create a cloud, run:\n\n  ocadm operator install --onecloud-version VERSION" + image + "\n\n"
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

func newInit(a *app) *cobra.Command {
	var f runFlags
	var from restoreFlags
	p := plan{name: "init", command: config.ForInit, phases: phases.Init(), rollback: phases.Rollback(), prepare: from.prepare, finish: finishInit}
	c := &cobra.Command{
		Use:   "init",
		Short: "Make this machine the first node of a cluster and its cloud",
		Long: "Turns a fresh machine into a Kubernetes control plane with pod network, storage, web access, database and operator. With\n" +
			"--onecloud-version it also creates a cloud; with --restore-from it restores one from a backup. After a failure, run init again: it continues where\n" +
			"it stopped. Running it again after success changes nothing.",
		Example: `  # install everything on one machine
  ocadm init --onecloud-version v4.0.3

  # install from a bundle that another machine serves; there, "ocadm bundle serve FILE" prints this line
  ocadm init --bundle https://10.0.0.9:6444 --bundle-ca-hash sha256:1234... --bundle-token abcdef.0123456789abcdef

  # use an existing database server; the password is in a file
  ocadm init --mysql-host 10.0.0.5 --mysql-password-file /root/mysql --onecloud-version v4.0.3

  # install without internet access
  ocadm init --bundle ocadm.bundle --offline --onecloud-version v4.0.3

  # recreate the cloud of a backup on this machine
  ocadm init --bundle ocadm.bundle --restore-from default-5f2c81d0-20261122T020000Z.ocadm-backup --identity key.txt

  # use a configuration file
  ocadm config print > ocadm.yaml && ocadm init --config ocadm.yaml`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runPlan(c, p, f) },
	}
	flags := func(fs *pflag.FlagSet, f *runFlags) {
		addSettings(fs, config.ForInit)
		addRunFlags(fs, f)
		addForce(fs, f)
		from.add(fs)
	}
	flags(c.Flags(), &f)
	bindPhases(c, a, p, flags)
	return c
}

// joinCommandTimeout bounds the last requests to the cluster. Init has succeeded even if they fail.
const joinCommandTimeout = 20 * time.Second

// finishInit prints the next steps. The join command is the result of init: it goes to standard output and, because it holds a token, nowhere else.
func finishInit(ctx context.Context, a *app, h *host.Host, f runFlags) error {
	ctx, cancel := context.WithTimeout(ctx, joinCommandTimeout)
	defer cancel()
	a.warnStillHost(ctx, h)
	join, err := kubernetes.JoinCommand(ctx, h, kubernetes.JoinRoles{Host: runsHosts(h)})
	if err != nil {
		a.warn("cannot determine the join command: %v; run ocadm token create --print-join-command later", err)
	}
	if f.output.String() == "jsonl" {
		return printResult(a, "init", withNetworks(h, map[string]string{"kubeconfig": h.Kubeconfig(), "joinCommand": join}))
	}
	if !f.quiet {
		fmt.Fprint(a.Err, afterInit(h, hasCloud(ctx, h)))
	}
	if join != "" {
		_, err = fmt.Fprintln(a.Out, join)
		return err
	}
	return nil
}

// hasCloud reports whether the cluster has a cloud already, as after a repeated init. Without an answer, there is none.
func hasCloud(ctx context.Context, h *host.Host) bool {
	k, err := h.Kube(ctx)
	if err != nil {
		return false
	}
	list, err := cluster.All(ctx, k)
	return err == nil && len(list) > 0
}

func afterInit(h *host.Host, cloudExists bool) string {
	text := "\nYour Kubernetes and Onecloud control-plane has initialized successfully!\n\n" +
		"To use the cluster as root, run:\n\n  export KUBECONFIG=" + h.Kubeconfig() + "\n\nAs another user, run:\n\n" +
		"  mkdir -p $HOME/.kube && sudo install -o $(id -u) -g $(id -g) -m 0600 " + h.Kubeconfig() + " $HOME/.kube/config\n\n"
	if list := h.Config.Node.NoProxy; h.Config.Node.HTTPSProxy != "" {
		text += "This shell has a proxy, which kubectl must not use for the cluster:\n\n  export NO_PROXY=" + strings.Join(list, ",") + "\n\n"
	}
	if h.Config.Cloud.Version == "" && !cloudExists {
		text += "To create a cloud, run:\n\n  ocadm cluster create --version VERSION --wait\n\n"
	} else {
		text += "To see the state of the cloud and to log in to it, run:\n\n  ocadm cluster status\n  ocadm cluster rcadmin\n\n"
	}
	if next := afterCompute(h); next != "" {
		text += strings.TrimPrefix(next, "\n") + "\n"
	}
	if !runsHosts(h) {
		return text + "To join another machine, run there as root:\n\n"
	}
	return text + "To add a compute node, run there as root (without --enable-host-agent for a node without virtual machines):\n\n"
}

// runsHosts reports whether the cloud's product runs virtual machines on the cluster's nodes.
func runsHosts(h *host.Host) bool { return h.Config.Cloud.ProductVersion != "CMP" }

// cloudImages computes the images of the cloud, so that preflight can check that the bundle has them.
func cloudImages(_ context.Context, _ *app, h *host.Host) error {
	images, err := imagesOfCloud(h.Config)
	if err != nil {
		return err
	}
	h.Config.Cloud.Images = images
	return nil
}

// printResult writes the last line of a run with "-o jsonl": the data that the run produced.
func printResult(a *app, plan string, data map[string]string) error {
	return writeJSONLine(a.Out, resultLine{Time: time.Now(), Type: "result", Plan: plan, Data: data})
}

type resultLine struct {
	Time time.Time          `json:"time"`
	Type workflow.EventType `json:"type"`
	Plan string             `json:"plan"`
	Data map[string]string  `json:"data"`
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/upgrade"
)

// newUpgrade groups the commands that change the Kubernetes version of nodes.
func newUpgrade(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "upgrade", Short: "Upgrade Kubernetes, node by node",
		Long: "Upgrades a cluster that ocadm built to the version of Kubernetes in a newer bundle: plan shows what would be done, apply upgrades the first\n" +
			"control-plane node, and node upgrades each other node. To upgrade the cloud: ocadm cluster update.",
		Example: "  ocadm upgrade plan --bundle ocadm.bundle\n  ocadm upgrade apply --bundle ocadm.bundle\n\n  # then, on each other node\n  ocadm upgrade node",
	}, newUpgradePlan(a), newUpgradeApply(a), newUpgradeNode(a), newUpgradeAddons(a))
}

// sourceFlags select the source of the new software.
type sourceFlags struct {
	bundle, key, version, depot, mirror string
	ignore                              []string
}

func (f *sourceFlags) add(c *cobra.Command, first bool) {
	c.Flags().StringVar(&f.bundle, "bundle", "", "bundle `FILE` with the new version; without it, the depot of the cluster")
	c.Flags().StringVar(&f.key, "bundle-key", "", "public key, in PEM, with which the bundle must be signed")
	c.Flags().StringVar(&f.mirror, "mirror", "", "mirror of the projects' release pages")
	if first {
		c.Flags().StringVar(&f.version, "kubernetes-version", "", "version to download, without a bundle")
		c.Flags().StringSliceVar(&f.ignore, "ignore-preflight-errors", nil, "checks whose errors become warnings; \"all\" means every check")
		return
	}
	c.Flags().StringVar(&f.depot, "depot", "", "depot of the cluster, HOST[:PORT], if it is not where the control plane answers; none downloads instead")
}

// upgradeHost returns this machine with the bundle opened. The caller closes the bundle.
func (a *app) upgradeHost(ctx context.Context, f sourceFlags, dryRun bool) (*host.Host, error) {
	h, err := controlPlaneHost(ctx, dryRun)
	if err != nil {
		return nil, err
	}
	h.Config.Node.Bundle, h.Config.Node.Depot, h.Config.Node.Mirror = f.bundle, f.depot, f.mirror
	if !kubernetes.IsControlPlane(h) { // its kubelet pulls from its depot
		endpoint, err := kubernetes.Server(h)
		if err != nil {
			return nil, finding.Errorf("OCA-4512", "This machine is not a node of a cluster", "run the command on a node that ocadm set up", "%w", err)
		}
		h.Config.Join.Endpoint = endpoint
	}
	if f.bundle == "" {
		return h, nil
	}
	if h.Bundle, err = bundle.Open(ctx, f.bundle); err != nil {
		return nil, err
	}
	if err := checkSignature(h.Bundle, "--bundle-key", f.key); err != nil {
		return nil, errors.Join(err, h.Bundle.Close())
	}
	return h, nil
}

// onUpgradeHost runs an upgrade command with the bundle opened, unless a CA rotation is in progress.
func (a *app) onUpgradeHost(ctx context.Context, f sourceFlags, dryRun bool, do func(*host.Host) error) (err error) {
	h, err := a.upgradeHost(ctx, f, dryRun)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeBundle(h)) }()
	if err := kubernetes.NoRotation(h, "an upgrade"); err != nil {
		return err
	}
	return do(h)
}

// upgraded is the output of "upgrade apply -o json" and "upgrade node -o json".
type upgraded struct {
	Node string `json:"node"`
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	stepsRun
}

// runUpgrade asks, and runs the steps of this machine: first those that can be undone, then the rest.
func (a *app) runUpgrade(c *cobra.Command, name string, u *upgrade.Upgrade, f stepFlags, next func() []string) error {
	defer u.Close()
	question := fmt.Sprintf("This upgrades node %s from Kubernetes %s to %s", u.Host.Config.Node.Name, u.Record.From, u.Record.To)
	if u.Record.Reconfigure && u.Record.From == u.Record.To {
		question = fmt.Sprintf("This applies the patches and settings of node %s; what differs restarts", u.Host.Config.Node.Name)
	}
	if err := a.confirmSteps(c, f, "Nothing was upgraded", question); err != nil {
		return err
	}
	all := noSteps()
	all.DryRun = f.dryRun
	for _, part := range []struct {
		steps     []upgrade.Step
		onFailure workflow.OnFailure
	}{{upgrade.ControlPlaneSteps(), u.OnFailure()}, {upgrade.NodeSteps(), workflow.Keep}} {
		f.onFailure = part.onFailure
		run, err := runSteps(c.Context(), a, u.Host, name, map[string]string{"from": u.Record.From, "to": u.Record.To}, part.steps, u, f)
		if err != nil {
			return kube.Explain(err)
		}
		all.Steps = append(all.Steps, run.Steps...)
	}
	if next != nil && !f.dryRun {
		all.Next = next()
	}
	return a.printSteps(f, upgraded{u.Host.Config.Node.Name, u.Record.From, u.Record.To, all}, "")
}

func newUpgradeApply(a *app) *cobra.Command {
	return a.upgradeCommand(true, a.applyUpgrade, &cobra.Command{
		Use: "apply", Short: "Upgrade the first control-plane node",
		Long: "Upgrades this control-plane node, and the configuration of the cluster, to the version of the bundle. It checks everything that plan shows,\n" +
			"saves a snapshot of etcd, and replaces the static pods one by one, each when the one before it is healthy. If one does not start, the\n" +
			"previous ones are restored, and etcd keeps its data. Then it upgrades the kubelet, and stores the bundle in the depot for the other nodes.\n\n" +
			"Pods keep running unless you give --drain; virtual machines are not touched. If it is interrupted, run it again: it continues.",
		Example: "  # show what would be done\n  ocadm upgrade apply --bundle ocadm.bundle --dry-run\n\n  ocadm upgrade apply --bundle ocadm.bundle\n\n" +
			"  # without a bundle, from the projects' release pages\n  ocadm upgrade apply --kubernetes-version v1.36.3",
	})
}

type upgradeFlags struct {
	stepFlags
	source             sourceFlags
	drain, reconfigure bool
}

// upgradeCommand completes a command that upgrades this node; first is true on the first control-plane node.
func (a *app) upgradeCommand(first bool, do func(*cobra.Command, *host.Host, upgradeFlags) error, c *cobra.Command) *cobra.Command {
	var f upgradeFlags
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.onUpgradeHost(c.Context(), f.source, f.dryRun, func(h *host.Host) error { return do(c, h, f) })
	}
	f.add(c)
	f.source.add(c, first)
	c.Flags().BoolVar(&f.drain, "drain", false, "move the pods of this node to others before its kubelet is replaced")
	if !first {
		c.Flags().BoolVar(&f.reconfigure, "reconfigure", false, "apply the patches in "+kubernetes.PatchesDir+" and the settings of the cluster, even if the node has the version")
	}
	return c
}

func (a *app) applyUpgrade(c *cobra.Command, h *host.Host, f upgradeFlags) error {
	ctx := c.Context()
	if err := a.recoverAPI(ctx, h, f.stepFlags); err != nil {
		return err
	}
	p, err := a.planned(ctx, h, f.source)
	if err != nil {
		return err
	}
	k, err := h.Kube(ctx)
	if err != nil {
		return noCluster(err)
	}
	u := &upgrade.Upgrade{Host: h, K: k, Target: p.Source, ControlPlane: true, Drain: f.drain}
	if err := upgrade.Begin(ctx, u, p.From, p.To); err != nil {
		return kube.Explain(err)
	}
	next := func() []string {
		return lists.Pick(p.Work, func(w upgrade.Work) (string, bool) {
			return "on " + w.Node + ": ocadm upgrade node", w.Node != h.Config.Node.Name
		})
	}
	switch {
	case u.Done(ctx):
		return a.printSteps(f.stepFlags, upgraded{Node: h.Config.Node.Name, To: p.To, stepsRun: noSteps(next()...)},
			fmt.Sprintf("Nothing to do: this node runs Kubernetes %s, and %s has nothing newer", p.To, p.Source.Name))
	case p.From == p.To && !u.Record.First:
		return finding.New("OCA-4504", "The first control-plane node has been upgraded", "the cluster is at "+p.To+", and work is left on this node",
			"here and on the other nodes: ocadm upgrade node")
	}
	if err := u.CheckSource(); err != nil {
		return err
	}
	u.Record.First = true
	ui.Findings(a.Err, program, p.Findings.Warnings())
	if err := p.Findings.Err(); err != nil && !u.Record.Committed {
		return err
	}
	return a.runUpgrade(c, "upgrade apply", u, f.stepFlags, next)
}

// recoverAPI waits for the API server after an interrupted exchange. If it does not start, the previous static pods are restored.
func (a *app) recoverAPI(ctx context.Context, h *host.Host, f stepFlags) error {
	before, err := upgrade.Unfinished(h)
	if err != nil || before == nil || before.Committed || f.dryRun {
		return err
	}
	err = a.awaitAPI(ctx, kubernetes.ExchangePatience, func(ctx context.Context) error {
		k, err := h.Kube(ctx)
		if err == nil {
			_, err = kubernetes.ClusterVersion(ctx, k)
		}
		return err
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	step := upgrade.Step{Name: "put-back", Short: "Restore the previous static pods", Timeout: 15 * time.Minute,
		Run: func(ctx context.Context, u *upgrade.Upgrade, r workflow.Reporter) error {
			return upgrade.Recover(ctx, u.Host, r)
		}}
	_, err = runSteps(ctx, a, h, "upgrade recover", nil, []upgrade.Step{step}, &upgrade.Upgrade{Host: h}, f)
	return err
}

func newUpgradeNode(a *app) *cobra.Command {
	return a.upgradeCommand(false, a.upgradeNode, &cobra.Command{
		Use: "node", Short: "Upgrade this node to the version of the cluster",
		Long: "Upgrades this node, once apply has upgraded the first control-plane node. Other control-plane nodes come first: each waits until no other\n" +
			"one is being upgraded and all are healthy. Then the workers, in any order. The software comes from the depot of the cluster.\n\n" +
			"--reconfigure applies changes of patches, and of kubeadm's configuration in the cluster, to a node that already has the version: the static pods\n" +
			"that differ are replaced as in an upgrade, and the kubelet restarts. If one does not start, the previous ones are restored.\n\n" +
			"Pods keep running unless you give --drain; virtual machines are not touched. If it is interrupted, run it again: it continues.",
		Example: "  ocadm upgrade node --dry-run\n  ocadm upgrade node\n\n  # move the pods of this node to others first\n  ocadm upgrade node --drain --yes\n\n" +
			"  # after a change in " + kubernetes.PatchesDir + "\n  ocadm upgrade node --reconfigure --dry-run",
	})
}

func (a *app) upgradeNode(c *cobra.Command, h *host.Host, f upgradeFlags) error {
	ctx := c.Context()
	u := &upgrade.Upgrade{Host: h, ControlPlane: kubernetes.IsControlPlane(h), Drain: f.drain, Reconfigure: f.reconfigure}
	var err error
	if u.ControlPlane {
		if err := a.recoverAPI(ctx, h, f.stepFlags); err != nil {
			return err
		}
		u.K, err = h.Kube(ctx)
	} else {
		u.K, err = kubernetes.NodeClient(h)
	}
	if err != nil {
		return noCluster(err)
	}
	version, err := kubernetes.ClusterVersion(ctx, u.K)
	if err != nil {
		return kube.Explain(err)
	}
	if err := upgrade.Begin(ctx, u, version, version); err != nil {
		return kube.Explain(err)
	}
	switch {
	case u.Record.First:
		return finding.New("OCA-4514", "Another upgrade of this machine is not complete", "ocadm upgrade apply was interrupted here",
			"run ocadm upgrade apply again, with the same bundle or a newer one: it continues")
	case u.Done(ctx):
		return a.printSteps(f.stepFlags, upgraded{Node: h.Config.Node.Name, To: version, stepsRun: noSteps()}, "Nothing to do: this node runs Kubernetes "+version+", as the cluster")
	}
	if err := upgrade.MayFollow(ctx, u); err != nil {
		return kube.Explain(err)
	}
	if err := kubernetes.AsTheCluster(ctx, h, u.K, version); err != nil {
		return kube.Explain(err)
	}
	u.Target, err = upgrade.Follow(ctx, h, version, func(why string) { fmt.Fprintln(a.Err, "waiting for the depot: "+why) })
	if err != nil {
		return err
	}
	return a.runUpgrade(c, "upgrade node", u, f.stepFlags, nil)
}

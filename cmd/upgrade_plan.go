// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/upgrade"
)

type upgradePlan struct {
	From   string         `json:"from"`
	To     string         `json:"to"`
	Source upgrade.Target `json:"source"`
	upgrade.Inventory
	// Work lists what is left, in order.
	Work []upgrade.Work `json:"work"`
	// Installed lists the addons that "upgrade addons" would change, or why it would not.
	Installed []addons.Installed `json:"installedAddons,omitempty"`
	Findings  finding.List       `json:"findings"`
}

// planned gathers everything for a plan.
func (a *app) planned(ctx context.Context, h *host.Host, f sourceFlags) (*upgradePlan, error) {
	if !kubernetes.IsControlPlane(h) {
		return nil, upgrade.NotControlPlane()
	}
	k, err := h.Kube(ctx)
	if err != nil {
		return nil, noCluster(err)
	}
	server, err := h.REST(ctx)
	if err != nil {
		return nil, noCluster(err)
	}
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	is, err := upgrade.Look(asking, k, server, h.Config.Node.Name)
	if err != nil {
		return nil, kube.Explain(err)
	}
	t, err := upgrade.NewTarget(ctx, h, is.Version, f.version)
	if err != nil {
		return nil, err
	}
	if err := kubernetes.AsTheCluster(ctx, h, k, t.Version); err != nil {
		return nil, kube.Explain(err)
	}
	facts, err := upgrade.GatherFacts(ctx, h, t)
	if err != nil {
		return nil, err
	}
	p := &upgradePlan{From: is.Version, To: t.Version, Source: t, Inventory: is, Work: upgrade.Left(is, t), Findings: finding.List{}}
	if len(p.Work) > 0 {
		p.Findings = append(p.Findings, upgrade.Judge(is, t, facts, time.Now()).Ignore(f.ignore)...)
	}
	return p, nil
}

func newUpgradePlan(a *app) *cobra.Command {
	var f sourceFlags
	var output *ui.Choice
	c := &cobra.Command{
		Use: "plan", Short: "Show what an upgrade of Kubernetes would do, and what prevents it",
		Long: "Shows what each node runs, what the bundle (or the depot of this node) has, what would be done on which node and what users would notice,\n" +
			"and everything that prevents the upgrade. It changes nothing. The exit status is 0 if nothing prevents it. Run it on a control-plane node.",
		Example: "  ocadm upgrade plan --bundle ocadm.bundle\n  ocadm upgrade plan --bundle ocadm.bundle -o json | jq .work",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			h, err := a.upgradeHost(c.Context(), f, true)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, closeBundle(h)) }()
			p, err := a.planned(c.Context(), h, f)
			if err != nil {
				return err
			}
			if p.Installed, err = installedAddons(c.Context(), h); err != nil {
				return err
			}
			for _, f := range addons.Unusable(p.Installed) { // the nodes can be upgraded nevertheless
				f.Severity = finding.Warning
				p.Findings = append(p.Findings, f)
			}
			if err := a.print(output, p, func(to *page) { printUpgradePlan(to, p) }); err != nil {
				return err
			}
			ui.Findings(a.Err, program, p.Findings.Warnings())
			return p.Findings.Err()
		},
	}
	f.add(c, true)
	output = addOutput(c, "text")
	return c
}

func printUpgradePlan(to *page, p *upgradePlan) {
	table(to, []string{"NODE", "ROLE", "STATE", "KUBELET", "API SERVER", "ETCD", "RUNTIME"}, p.Nodes, func(n upgrade.Node) []string {
		ready := "Ready"
		if !n.Ready {
			ready = "NotReady"
		}
		pods := n.StaticPods
		return []string{n.Name, n.Role(), ready, n.Kubelet, cmp.Or(pods["kube-apiserver"], "-"), cmp.Or(pods["etcd"], "-"), n.Runtime}
	})
	for _, addon := range p.Addons {
		to.line("%s %s", addon.Name, addon.Version)
	}
	if len(p.Work) == 0 {
		to.line("\nNothing to do on the nodes: all run Kubernetes %s, and %s has nothing newer", p.From, p.Source.Name)
	} else {
		to.line("\nKubernetes %s to %s, from %s", p.From, p.To, p.Source.Name)
	}
	for i, work := range p.Work {
		to.line("%d. on %s: %s", i+1, work.Node, work.Command)
		to.lines("     ", work.Does...)
		to.line("     interrupts: %s", work.Interrupts)
	}
	if lines := addonLines(p.Installed); len(lines) > 0 {
		to.line("%d. then, on this node: ocadm upgrade addons", len(p.Work)+1)
		to.lines("     upgrades ", lines...)
		to.line("     interrupts: nothing; pods keep their addresses and connections")
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// newCerts groups the commands about the certificates of the control plane.
func newCerts(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "certs", Short: "Check, renew and replace the certificates of the control plane",
		Long:    "Commands about the certificates of Kubernetes on this control-plane node. The operator renews those of the cloud's services.",
		Example: "  ocadm certs check\n  ocadm certs renew",
	}, newCertsCheck(a), newCertsRenew(a), newCertsRotate(a), newCertsTake(a))
}

// defaultDays is how many days before its expiry a certificate should be renewed.
const defaultDays = 30

func addDays(c *cobra.Command, days *uint16, what string) {
	c.Flags().Uint16Var(days, "days", defaultDays, what)
}

func newCertsCheck(a *app) *cobra.Command {
	var days uint16
	c := shows(a, &cobra.Command{
		Use: "check", Short: "Show when the certificates of this machine expire",
		Long: "Lists the certificates, kubeconfigs and authorities of this control-plane node and of its kubelet, in order of expiry. The exit\n" +
			"status is 0 if all are valid, 44 if one expires within --days or its file is damaged, and 43 if one has expired. It needs no API server.",
		Example: "  ocadm certs check\n  ocadm certs check --days 90 -o json",
	}, "table", func(c *cobra.Command, _ []string) ([]kubernetes.Certificate, error) {
		h, err := controlPlaneHost(c.Context(), true)
		if err != nil {
			return nil, err
		}
		list, err := kubernetes.Certificates(h, time.Now(), time.Duration(days)*24*time.Hour)
		if len(list) == 0 {
			return nil, cmp.Or(err, kubernetes.NoCertificates())
		}
		return list, butError{kubernetes.Expiry(list, h.Config.Node.Name)}
	}, func(p *page, list []kubernetes.Certificate) {
		table(p, []string{"NAME", "KIND", "EXPIRES", "DAYS", "STATE", "FILE"}, list, func(c kubernetes.Certificate) []string {
			end, days := c.NotAfter.Format(time.RFC3339), strconv.Itoa(c.DaysLeft)
			if c.State == kubernetes.CertificateDamaged {
				end, days = "-", "-"
			}
			return []string{c.Name, c.Kind, end, days, c.State, c.File}
		})
	})
	addDays(c, &days, "`number` of days before expiry at which a certificate counts as expiring soon")
	return c
}

type certsRenewed struct {
	Node string `json:"node"`
	stepsRun
}

func newCertsRenew(a *app) *cobra.Command {
	var f stepFlags
	var cloud cloudFlags
	var days uint16
	var all, everywhere bool
	c := &cobra.Command{
		Use: "renew", Short: "Renew the certificates of this machine",
		Long: "Renews the certificates and kubeconfigs of this control-plane node and of its kubelet that expire within --days, for another year. etcd\n" +
			"and the API server read new certificates while they run. The controller manager and the scheduler restart, each when the one before it\n" +
			"is healthy. The command needs no API server. It also works when everything has expired: then it restarts all four. Run it on each\n" +
			"control-plane node, one after the other. If all have expired, it ends on the first one before etcd answers: continue on the next one.\n\n" +
			"A file that cannot be read, for example because a power cut emptied it, is created again if its authority is intact.\n\n" +
			"In a cloud, the operator renews certificates in time. With --all-nodes, it renews everything on all control-plane nodes now, and the command waits.\n" +
			"Authorities are not renewed. If the command is interrupted, run it again: it continues.",
		Example: "  # show what would be renewed\n  ocadm certs renew --dry-run\n\n  ocadm certs renew\n\n  # also those that do not expire soon\n  ocadm certs renew --all --yes\n\n" +
			"  # everything on all control-plane nodes, by the operator\n  ocadm certs renew --all-nodes",
		RunE: func(c *cobra.Command, _ []string) error {
			if everywhere {
				return a.renewAllNodes(c, f, &cloud)
			}
			h, err := controlPlaneHost(c.Context(), f.dryRun)
			if err != nil {
				return err
			}
			n, err := kubernetes.PlanRenewal(c.Context(), h, time.Now(), time.Duration(days)*24*time.Hour, all)
			if err != nil {
				return err
			}
			kubernetes.UseValidity(c.Context(), h)
			inputs := map[string]string{"--days": strconv.Itoa(int(days)), "--all": strconv.FormatBool(all)}
			if plan := f; !f.dryRun && !f.yes {
				plan.dryRun = true
				todo, err := runSteps(c.Context(), a, h, "certs renew", inputs, kubernetes.RenewSteps(), n, plan)
				f.yes = err == nil && !slices.ContainsFunc(todo.Steps, func(s stepDone) bool { return len(s.Changes) > 0 }) // nothing to ask about
			}
			if err := a.confirmSteps(c, f, "Nothing was renewed", "This renews certificates and restarts the control plane on this machine"); err != nil {
				return err
			}
			run, err := runSteps(c.Context(), a, h, "certs renew", inputs, kubernetes.RenewSteps(), n, f)
			if err != nil {
				return err
			}
			return a.printSteps(f, certsRenewed{h.Config.Node.Name, run}, "Nothing to do: no certificate of "+h.Config.Node.Name+" expires soon")
		},
	}
	f.add(c)
	addDays(c, &days, "renew certificates that expire within this `number` of days")
	c.Flags().BoolVar(&all, "all", false, "renew everything")
	c.Flags().BoolVar(&everywhere, "all-nodes", false, "let the operator renew everything on all control-plane nodes, one after the other")
	cloud.add(a, c, nil)
	cloud.addWait(c.Flags(), true, "with --all-nodes: wait until it is done")
	return c
}

// renewAllNodes makes the operator renew everything on all control-plane nodes.
func (a *app) renewAllNodes(c *cobra.Command, f stepFlags, cloud *cloudFlags) error {
	for _, name := range []string{"days", "all", "dry-run"} {
		if c.Flags().Changed(name) {
			return misused("--"+name+" and --all-nodes cannot be combined", "leave out --"+name)
		}
	}
	if err := a.confirm(c, f.yes, "Nothing was renewed")("This renews the certificates of all control-plane nodes and restarts their controller managers and schedulers"); err != nil {
		return err
	}
	cloud.output = ui.NewFormat("table", "json", "yaml", "jsonl")
	if format := f.output.String(); format != "text" {
		if err := cloud.output.Set(format); err != nil {
			return err
		}
	}
	return cloud.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
		return a.operate(ctx, k, cloud, &cluster.Operation{Spec: v1alpha1.OnecloudOperationSpec{
			Cloud: cloud.name, Action: v1alpha1.ActionRenewCertificates, Requester: requester(),
			RenewCertificates: &v1alpha1.RenewCertificatesParameters{All: true},
		}})
	})
}

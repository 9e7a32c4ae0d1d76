// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	operatorphase "yunion.io/x/ocadm/phases/operator"
)

type removed struct {
	// Changes are lines such as "deleted Deployment onecloud/onecloud-operator"; with --dry-run "delete …".
	Changes []string `json:"changes"`
	// Kept lists objects that stay.
	Kept []string `json:"kept,omitempty"`
}

func newOperatorUninstall(a *app) *cobra.Command {
	f := cloudFlags{wait: true}
	var data, yes, dryRun bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the operator from a cluster and keep all data",
		Long: "Removes what install created: the operator, its permissions, its resource definitions, the embedded database, the roles of nodes, and\n" +
			"the namespaces if nothing else is in them. Everything else stays. While the cluster holds a cloud, the command refuses and names the\n" +
			"command that deletes it.\n\n" +
			"The volume and the password of the embedded database and the settings of the cloud stay, too, and install reuses them.\n" +
			"--delete-data deletes them, and with them everything in the namespaces that install created.",
		Example: "  ocadm operator uninstall\n  ocadm operator uninstall --dry-run\n  ocadm operator uninstall --yes --delete-data",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				r, err := operatorphase.PlanRemoval(ctx, k, data)
				if err != nil || dryRun || len(r.Changes()) == 0 {
					return a.printRemoved(&f, r, kube.Change.Planned, err)
				}
				if !yes {
					a.showRemoval(r)
				}
				if err := a.confirm(c, yes, "Nothing was removed")("This removes the operator"); err != nil {
					return err
				}
				return a.remove(ctx, k, &f, r)
			})
		},
	}
	fs := c.Flags()
	addKubeconfig(fs, &f.kubeconfig)
	f.output = addOutput(c, "text")
	fs.DurationVar(&f.timeout, "timeout", waitTimeout, "how long to wait")
	fs.BoolVar(&data, "delete-data", false, "delete the embedded database's volume, passwords and settings, too, and all else in the namespaces that install created")
	fs.BoolVar(&dryRun, "dry-run", false, "print what would be removed, and remove nothing")
	addYes(fs, &yes)
	a.readsSettings(c, map[string]string{"kubeconfig": "cluster.kubeconfig"})
	return c
}

func (a *app) showRemoval(r operatorphase.Removal) {
	var p page
	p.list("This changes:", lists.Map(r.Changes(), kube.Change.Planned))
	p.list("These stay:", r.Keep)
	fmt.Fprint(a.Err, p.String())
}

func (a *app) remove(ctx context.Context, k client.WithWatch, f *cloudFlags, r operatorphase.Removal) error {
	s := a.story()
	done, err := r.Apply(ctx, k, s.Waiting)
	s.Close()
	r.Delete, r.Nodes = nil, nil
	return a.printRemoved(f, r, kube.Change.String, err, done...)
}

// printRemoved prints changes, by default those that are planned. It returns err unchanged.
func (a *app) printRemoved(f *cloudFlags, r operatorphase.Removal, line func(kube.Change) string, err error, done ...kube.Change) error {
	out := removed{Changes: []string{}, Kept: r.Keep}
	for _, change := range append(r.Changes(), done...) {
		out.Changes = append(out.Changes, line(change))
	}
	if err != nil && len(out.Changes) == 0 {
		return err
	}
	printed := a.print(f.output, out, func(p *page) {
		if p.lines("", out.Changes...); len(out.Changes) == 0 {
			p.line("The operator is not installed; nothing was changed")
		}
		p.lines("kept ", out.Kept...)
	})
	return cmp.Or(err, printed)
}

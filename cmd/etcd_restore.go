// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
)

// etcdRestored is what "etcd restore -o json" and "etcd rejoin -o json" print.
type etcdRestored struct {
	Member string `json:"member"`
	// Snapshot is what was restored; without one, the member's own data.
	Snapshot *snapshot.Info `json:"snapshot,omitempty"`
	Loses    string         `json:"loses,omitempty"`
	DryRun   bool           `json:"dryRun,omitempty"`
	Steps    []stepDone     `json:"steps"`
	Next     []string       `json:"next,omitempty"`
}

func newEtcdRestore(a *app) *cobra.Command {
	f := stepFlags{onFailure: workflow.Rollback}
	var own, alone bool
	c := &cobra.Command{
		Use: "restore [FILE]", Short: "Restore etcd from a snapshot, with this machine as its only member",
		Long: "Restores the last good snapshot of this machine, or FILE. It first prints what will be lost: everything since the snapshot, in\n" +
			"Kubernetes and in the resources of the cloud. Then it stops the control plane here, creates a new etcd with one member from the\n" +
			"snapshot, and starts the control plane again. The former data stays beside the new data. Virtual machines and databases are not touched.\n\n" +
			"With several control-plane nodes, first run ocadm etcd rejoin --after-restore ADDRESS on the others: they stop, wait, and join again\n" +
			"when this one is restored.\n\n" +
			"--from-data uses the present data of this member and loses none of it. Use it on the last survivor when the majority is lost for good.\n\n" +
			"If the command fails, it puts the former data back and starts the control plane with it. If it is killed, run it again: it continues.",
		Example: "  # show what would be lost\n  ocadm etcd restore --dry-run\n\n  ocadm etcd restore\n\n" +
			"  # the other two of three machines are lost\n  ocadm etcd restore --from-data",
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			file := ""
			if len(args) == 1 {
				file = args[0]
			}
			if own && file != "" {
				return misused("both a FILE and --from-data are given", c.UseLine())
			}
			return a.restoreEtcd(c, file, own, alone, f)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&own, "from-data", false, "restore from the present data of this member, in place of a snapshot")
	c.Flags().BoolVar(&alone, "alone", false, "continue although ocadm cannot find out whether other control-plane nodes run: none does")
	return c
}

func (a *app) restoreEtcd(c *cobra.Command, file string, own, alone bool, f stepFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	r, err := etcdphase.PlanRestore(ctx, h, file, own, alone)
	if err != nil {
		return err
	}
	out := etcdRestored{Member: r.Member.Name, Loses: r.Loses(time.Now()), DryRun: f.dryRun}
	what := "the present data of this member"
	if r.File != "" {
		out.Snapshot = &r.Info
		what = fmt.Sprintf("%s (%s, revision %d)", r.File, r.Info.Time.Format(time.RFC3339), r.Info.Revision)
	}
	fmt.Fprintf(a.Err, "This restores %s.\nIt loses %s.\n", what, out.Loses)
	if !f.dryRun {
		if err := a.confirm(c, f.yes, "Nothing was restored")("The control plane on this machine stops for about a minute"); err != nil {
			return err
		}
	}
	res, err := runSteps(ctx, a, h, "etcd restore", map[string]string{"file": r.File}, etcdphase.RestoreSteps(), r, f)
	if err != nil {
		return err
	}
	out.Steps = stepsDone(res)
	own1, _ := url.Parse(r.Member.ClientURL) // the manifest has it, and etcd ran with it
	out.Next = []string{"ocadm etcd status", "on other control-plane nodes: ocadm etcd rejoin --after-restore " + own1.Hostname(),
		"on workers: systemctl restart kubelet, and restart what holds watches for weeks",
		"when the cluster is well: rm -r " + r.Member.DataDir + "/ocadm-before-*"}
	return a.printRestored(f, out, res)
}

func (a *app) printRestored(f stepFlags, out etcdRestored, res workflow.Result) error {
	return ui.Print(a.Out, f.output.String(), out, func(w io.Writer) error {
		if err := stepsText(w, res, "Nothing to do"); err != nil {
			return err
		}
		return nextText(w, out.Next)
	})
}

func newEtcdRejoin(a *app) *cobra.Command {
	var f stepFlags
	var after string
	c := &cobra.Command{
		Use: "rejoin", Short: "Replace the data of this machine's member, from the other members",
		Long: "Replaces damaged data of this machine's member while a majority of the others works: stops the control plane here, moves the data aside,\n" +
			"adds the member to etcd again as a learner that gets all data from the others, promotes it to a voter, and starts the control plane\n" +
			"again.\n\n" +
			"With --after-restore, it stops the control plane and waits until etcd is restored on the control-plane node with this address. If it is\n" +
			"interrupted, run it again: it continues.",
		Example: "  # this member's data is damaged\n  ocadm etcd rejoin\n\n" +
			"  # a snapshot is restored on the control-plane node 10.0.0.11\n  ocadm etcd rejoin --after-restore 10.0.0.11",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return a.rejoinEtcd(c, after, f) },
	}
	f.add(c)
	c.Flags().StringVar(&after, "after-restore", "", "wait for the restore on the control-plane node with this `address`")
	return c
}

func (a *app) rejoinEtcd(c *cobra.Command, after string, f stepFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	r, err := etcdphase.PlanRejoin(ctx, h, after)
	if err != nil {
		return err
	}
	out := etcdRestored{Member: r.Member.Name, DryRun: f.dryRun, Steps: []stepDone{}}
	if r.Works(ctx) {
		out.Next = []string{"ocadm etcd status: the member " + r.Member.Name + " votes and answers"}
		return a.printRestored(f, out, workflow.Result{})
	}
	if !f.dryRun {
		if err := a.confirm(c, f.yes, "Nothing was changed")("This stops the control plane on this machine and gives up the data of its member of etcd"); err != nil {
			return err
		}
	}
	res, err := runSteps(ctx, a, h, "etcd rejoin", map[string]string{"--after-restore": after}, etcdphase.RejoinSteps(), r, f)
	if err != nil {
		return err
	}
	out.Steps, out.Next = stepsDone(res), []string{"ocadm etcd status", "when the cluster is well: rm -r " + r.Member.DataDir + "/ocadm-before-*"}
	return a.printRestored(f, out, res)
}

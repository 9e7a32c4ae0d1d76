// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/workflow"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
)

// etcdRestored is the output of "etcd restore -o json" and "etcd rejoin -o json".
type etcdRestored struct {
	Member string `json:"member"`
	// Snapshot is the restored snapshot; nil if the member's own data is used.
	Snapshot *snapshot.Info `json:"snapshot,omitempty"`
	Loses    string         `json:"loses,omitempty"`
	// Silent lists the addresses of other control-plane nodes that do not answer.
	Silent []string `json:"silent,omitempty"`
	// Preview describes the clouds' state after the restore, and the age of the member's own data.
	Preview *etcdphase.Preview `json:"preview,omitempty"`
	stepsRun
}

func newEtcdRestore(a *app) *cobra.Command {
	f := stepFlags{onFailure: workflow.Rollback}
	var from etcdSource
	var newer, forget bool
	c := &cobra.Command{
		Use: "restore [FILE]", Short: "Restore etcd from a snapshot, with this machine as its only member",
		Long: "Restores the last good snapshot of this machine, or FILE. It first prints what will be lost: everything since the snapshot, in\n" +
			"Kubernetes and in the resources of the cloud. Then it stops the control plane here, creates a new etcd with one member from the\n" +
			"snapshot, and starts the control plane again. The former data stays beside the new data. Virtual machines are not touched.\n\n" +
			"The databases of a cloud are not in etcd and are not restored. Therefore each cloud of the snapshot, and each operation that had not\n" +
			"ended then, is paused before the API server starts: the pods run as recorded in the snapshot, and the operator changes nothing until\n" +
			"ocadm cluster start. The servers of an embedded database with a replica determine which of them was the primary last. The command refuses\n" +
			"a snapshot of a cloud version other than the current one, and one from before the current primary was added as a replica (OCA-4157),\n" +
			"unless --newer-databases is given. --dry-run shows the version of each cloud in the snapshot and now.\n\n" +
			"With several control-plane nodes, first run ocadm etcd rejoin --after-restore ADDRESS on the others: they stop, wait, and join again\n" +
			"when this one is restored.\n\n" +
			"FILE may also be a snapshot that the nightly backup has stored beside a backup (….ocadm-etcd), on this machine or in a bucket, as\n" +
			"s3://BUCKET/PATH/NAME with --s3-endpoint. --identity decrypts it into a directory that only root can enter, and that is removed\n" +
			"afterwards.\n\n" +
			"--from-data uses the present data of this member and loses none of it. Use it on the last survivor when the majority is lost for good.\n" +
			"Writes that the other members accepted while this one did not run are lost: the command prints the time of the newest entry here, and\n" +
			"pauses the clouds if it is more than five minutes old.\n\n" +
			"If the certificate authorities are being rotated and the restored data has no record of it, the command refuses (OCA-4158).\n\n" +
			"If the command fails, it puts the former data back and starts the control plane with it. If it is killed, run it again: it continues.",
		Example: "  # show what would be lost\n  ocadm etcd restore --dry-run\n\n  ocadm etcd restore\n\n" +
			"  # a snapshot that was stored with the backups\n" +
			"  ocadm etcd restore /mnt/default-5f2c81d0-20261122T020000Z.ocadm-etcd --identity key.txt\n\n" +
			"  # the other two of three machines are lost\n  ocadm etcd restore --from-data",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				from.file = args[0]
			}
			if from.own && from.file != "" {
				return misused("both a FILE and --from-data are given", c.UseLine())
			}
			if err := from.store.fit(from.file); err != nil {
				return err
			}
			return a.restoreEtcd(c, f, newer, forget, from)
		},
	}
	f.add(c)
	from.store.add(c.Flags())
	from.keys.addIdentityFlag(c.Flags())
	c.Flags().BoolVar(&from.own, "from-data", false, "restore from the present data of this member, instead of a snapshot")
	c.Flags().BoolVar(&from.alone, strings.TrimPrefix(etcdphase.Alone, "--"), false,
		"continue although ocadm cannot determine whether other control-plane nodes run; use it only if none does")
	c.Flags().BoolVar(&newer, strings.TrimPrefix(etcdphase.NewerDatabases, "--"), false,
		"continue although the databases are of a later version than in the snapshot, or on another server")
	c.Flags().BoolVar(&forget, strings.TrimPrefix(etcdphase.ForgetRotation, "--"), false,
		"continue although the record of a rotation of the certificate authorities is lost; begin a new one afterwards")
	return c
}

func (a *app) restoreEtcd(c *cobra.Command, f stepFlags, newer, forget bool, from etcdSource) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	s := a.story()
	r, remove, err := from.plan(ctx, h, s)
	s.Close()
	if err != nil {
		return err
	}
	defer remove()
	out := etcdRestored{Member: r.Member.Name, Loses: r.Loses(time.Now())}
	what := "the present data of this member"
	if r.File != "" {
		out.Snapshot = &r.Info
		r.Info.File = r.Named()
		what = fmt.Sprintf("%s (%s, revision %d)", r.Named(), r.Info.Time.Format(time.RFC3339), r.Info.Revision)
	}
	fmt.Fprintf(a.Err, "This restores %s.\nIt loses %s.\n", what, out.Loses)
	question := "The control plane on this machine stops for about a minute"
	if len(r.Silent) > 0 {
		fmt.Fprintf(a.Err, "Control-plane nodes %[1]s do not answer. If they run and are only unreachable from here, they continue as another cluster.\n"+
			"Make sure that they are off, or that ocadm etcd rejoin waits there.\n", strings.Join(r.Silent, ", "))
		out.Silent = r.Silent
	}
	p, err := r.Preview(ctx)
	if err != nil {
		return err
	}
	out.Preview = &p
	fmt.Fprint(a.Err, previewText(p))
	if err := p.Fits(); err != nil && !newer {
		return err
	}
	r.ForgetRotation = forget
	if err := r.KeepsRotation(ctx); err != nil {
		return err
	}
	if p.Holds() {
		question += ". Pods run as recorded in " + map[bool]string{true: "the snapshot", false: "this member"}[p.Own == nil] +
			", on the current databases; the clouds stay paused until ocadm cluster start"
	}
	if err := a.confirmSteps(c, f, "Nothing was restored", question); err != nil {
		return err
	}
	inputs := map[string]string{"file": r.Named()}
	flags := map[string]bool{etcdphase.NewerDatabases: newer, etcdphase.Alone: from.alone, etcdphase.ForgetRotation: forget}
	for flag, given := range flags { // a user who resumes the run needs them
		if given {
			inputs[flag] = "true"
		}
	}
	if out.stepsRun, err = runSteps(ctx, a, h, "etcd restore", inputs, etcdphase.RestoreSteps(), r, f); err != nil {
		return err
	}
	own, _ := url.Parse(r.Member.ClientURL) // the manifest has it, and etcd ran with it
	out.Next = []string{"ocadm etcd status", "on other control-plane nodes: ocadm etcd rejoin --after-restore " + own.Hostname() +
		" (those that are off: turn on one, run it there, then the next; two that start together continue as the former cluster)",
		"on workers: systemctl restart kubelet, and restart programs that keep watches open for weeks"}
	out.Next = append(out.Next, nextOfClouds(paused(ctx, r, out))...)
	out.Next = append(out.Next, "when the cluster works: rm -r "+r.Member.DataDir+"/ocadm-before-*")
	return a.printSteps(f, out, "Nothing to do")
}

// paused describes what was paused. For the member's own data that may be known only now: without a majority, etcd could not read it.
func paused(ctx context.Context, r *etcdphase.Restore, out etcdRestored) etcdphase.Preview {
	switch done := slices.ContainsFunc(out.Steps, func(s stepDone) bool { return s.Name == etcdphase.HoldStep && s.State != workflow.Skipped }); {
	case !done:
		return etcdphase.Preview{}
	case out.Preview.Own == nil || out.Preview.Own.Unread == "" || out.DryRun:
		return *out.Preview
	}
	again, err := r.Preview(ctx)
	if err != nil || again.Own.Unread != "" {
		return etcdphase.Preview{} // the clouds show that they are paused
	}
	return again
}

// previewText describes the consequences for the clouds.
func previewText(p etcdphase.Preview) string {
	var b strings.Builder
	if p.Own != nil {
		fmt.Fprintf(&b, "%s.\n", p.Own)
		if !p.Own.Pauses {
			return b.String()
		}
	}
	for _, c := range p.Clouds {
		fmt.Fprintf(&b, "  %s\n", c)
	}
	for _, o := range p.Operations {
		fmt.Fprintf(&b, "  operation %s had not ended: it is paused\n", o)
	}
	if p.Unknown != "" && p.Holds() {
		fmt.Fprintf(&b, "  The current state of the clouds is unknown: %s\n", p.Unknown)
	}
	for _, u := range p.Unreadable {
		fmt.Fprintf(&b, "  Cannot be read, and therefore not paused: %s\n", u)
	}
	return b.String()
}

// nextOfClouds returns what to check, and the commands that let the operator act again.
func nextOfClouds(p etcdphase.Preview) []string {
	var out []string
	for _, c := range p.Clouds {
		if c.Snapshot == nil {
			continue
		}
		out = append(out, "check the paused cloud: ocadm cluster status --name "+c.Name+" -n "+c.Namespace+"; ocadm cluster database status -n "+c.Namespace,
			"when its version fits the databases: ocadm cluster start --name "+c.Name+" -n "+c.Namespace)
	}
	if len(p.Operations) > 0 {
		out = append(out, "decide about each operation: ocadm operation list, then ocadm operation resume NAME, or ocadm operation cancel NAME")
	}
	return out
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
	out := etcdRestored{Member: r.Member.Name}
	if r.Works(ctx) {
		out.stepsRun = noSteps("ocadm etcd status: the member " + r.Member.Name + " votes and answers")
		out.DryRun = f.dryRun
		return a.printSteps(f, out, "Nothing to do")
	}
	if err := a.confirmSteps(c, f, "Nothing was changed", "This stops the control plane on this machine and discards the data of its member of etcd"); err != nil {
		return err
	}
	if out.stepsRun, err = runSteps(ctx, a, h, "etcd rejoin", map[string]string{"--after-restore": after}, etcdphase.RejoinSteps(), r, f); err != nil {
		return err
	}
	out.Next = []string{"ocadm etcd status", "when the cluster works: rm -r " + r.Member.DataDir + "/ocadm-before-*"}
	return a.printSteps(f, out, "Nothing to do")
}

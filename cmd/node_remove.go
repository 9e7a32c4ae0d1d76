// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/removal"
)

type nodeRemoved struct {
	// Had is the node's former content in the cluster.
	Had removal.Inventory `json:"had"`
	stepsRun
}

func newNodeRemove(a *app) *cobra.Command {
	var f stepFlags
	var volumes bool
	c := &cobra.Command{
		Use: "remove NAME", Short: "Remove a node whose machine is lost",
		Long: "Removes a node that cannot leave the cluster by itself because its machine is lost: its member of etcd, its place in the group of the\n" +
			"virtual address, its Node and its pods. It first lists what was on the node, above all the volumes on its disks, and asks for\n" +
			"confirmation. Run it on another control-plane node. It refuses if etcd would lose its majority. If it is interrupted, run it again: it\n" +
			"continues where it stopped.\n\n" +
			"Claims of volumes on the lost disks stay, and their pods wait, until you repeat the command with --delete-volumes. Their pods then get\n" +
			"new, empty volumes elsewhere.\n\n" +
			"A machine whose join did not complete may have a member of etcd but no name yet: give its address as NAME. ocadm etcd status shows it.\n\n" +
			"If the machine still runs, prefer ocadm reset, which does all of this by itself. If you remove its node here, its pods move away first;\n" +
			"run ocadm reset on the machine afterwards, before it joins again.",
		Example: "  # show what is on the node, and what would be done\n  ocadm node remove node3 --dry-run\n\n  ocadm node remove node3\n\n" +
			"  # delete its volumes, too\n  ocadm node remove node3 --delete-volumes --yes\n\n" +
			"  # its join did not complete: etcd has only its address\n  ocadm node remove 10.0.0.7",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.removeNode(c, args[0], volumes, f) },
	}
	f.add(c)
	c.Flags().BoolVar(&volumes, "delete-volumes", false, "delete the claims and volumes that were on the disks of the node: their data is lost")
	return c
}

func (a *app) removeNode(c *cobra.Command, name string, volumes bool, f stepFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	a.askNearest(ctx, h)
	k, err := h.Kube(ctx)
	if err != nil {
		return noAccess(h, err)
	}
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	is, err := removal.Look(asking, h, k, name)
	if err != nil {
		return kube.Explain(err)
	}
	if is.Nothing() && (!volumes || len(is.Volumes) == 0) {
		if err := is.Unknown(); err != nil {
			return err
		}
		return a.printNodeRemoved(f, nodeRemoved{is, noSteps(nextAfterRemoval(is, volumes)...)}, volumes, "Nothing to do: the cluster has no node "+is.Node)
	}
	if err := is.Refuse(asking, h, k); err != nil {
		return err
	}
	if !f.dryRun && (f.output.String() == "text" || !f.yes) {
		showInventory(a.redact.Writer(a.Err), is, volumes)
	}
	if err := a.confirmSteps(c, f, "Nothing was removed", "This removes node "+is.Node+" from the cluster"); err != nil {
		return err
	}
	j := &removal.Job{Host: h, K: k, Is: is, DeleteVolumes: volumes}
	inputs := map[string]string{"node": is.Node, "--delete-volumes": strconv.FormatBool(volumes)}
	run, err := runSteps(ctx, a, h, "node remove", inputs, removal.Steps(), j, f)
	if err != nil {
		return kube.Explain(err)
	}
	run.Next = nextAfterRemoval(is, volumes)
	return a.printNodeRemoved(f, nodeRemoved{is, run}, volumes, "Nothing to do")
}

func (a *app) printNodeRemoved(f stepFlags, out nodeRemoved, volumes bool, nothing string) error {
	return a.print(f.output, out, func(p *page) {
		if f.dryRun {
			showInventory(p, out.Had, volumes)
			p.line("It would:")
		}
		out.text(p, nothing)
	})
}

func showInventory(w io.Writer, is removal.Inventory, volumes bool) {
	say := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) } // only the display can fail
	state := "its machine does not answer"
	switch {
	case is.Alive:
		state = "its machine answers: prefer ocadm reset on it"
	case !is.Registered:
		state = "it is no longer a Node"
	}
	say("Node %s (%s): %s", is.Node, strings.Join(is.Addresses, ", "), state)
	if len(is.Roles) > 0 {
		say("  roles    %s", strings.Join(is.Roles, ", "))
	}
	say("  etcd     %s", is.Etcd)
	say("  pods     %d", len(is.Pods))
	for _, r := range is.Roles {
		if r == "host" {
			say("  virtual machines on it: climc server-list --host %s", is.Node)
		}
	}
	if len(is.Volumes) == 0 {
		say("  volumes  none")
	}
	for _, v := range is.Volumes {
		what := "stays claimed; its pod waits until you give --delete-volumes"
		if volumes {
			what = "is deleted"
		}
		if v.Database {
			what += "; " + databaseOn(v)
		}
		claim := cmp.Or(v.Claim, v.Name+" (no claim)")
		say("  volume   %s, %s, %s: %s", claim, v.Size, v.Path, what)
	}
}

func nextAfterRemoval(is removal.Inventory, volumes bool) []string {
	var next []string
	if is.Alive {
		next = append(next, "on "+is.Node+": ocadm reset")
	}
	for _, m := range is.Machines {
		namespace, name, _ := strings.Cut(m, "/")
		next = append(next, "ocadm machine remove "+name+" --namespace "+namespace+" --abandon")
	}
	if !volumes && len(is.Volumes) > 0 {
		next = append(next, fmt.Sprintf("ocadm node remove %[1]s --delete-volumes, unless the disks of %[1]s come back; run it before a machine named %[1]s joins", is.Node))
	}
	for _, v := range is.Volumes {
		next = append(next, nextForDatabase(v, volumes)...)
	}
	if is.Etcd != "none" {
		next = append(next, "ocadm token create --print-join-command --control-plane, for the machine that replaces it")
	}
	return next
}

// databaseOn describes the content of a volume of the embedded database.
func databaseOn(v removal.Volume) string {
	switch v.OtherDatabase {
	case dbpair.RolePrimary:
		return "this is the replica of the database; a new replica copies the primary again"
	case dbpair.RoleReplica:
		return "this is the primary of the database: make sure that the replica takes its place"
	}
	return "this is the database of the cloud: restore a backup afterwards"
}

// nextForDatabase returns the remaining commands for the embedded database. A backup is older than a remaining server.
func nextForDatabase(v removal.Volume, deleted bool) []string {
	namespace, _, _ := strings.Cut(v.Claim, "/")
	switch {
	case v.Database && v.OtherDatabase == dbpair.RoleReplica:
		return []string{"ocadm cluster database status -n " + namespace + "; if the primary is still the one on the node: ocadm cluster database promote -n " + namespace}
	case v.Database && v.OtherDatabase == "" && deleted:
		return []string{"ocadm cluster backup restore FILE --identity key.txt -n " + namespace + ": the database of the cloud was on the node"}
	}
	return nil
}

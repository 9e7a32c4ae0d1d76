// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/config"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/owned"
)

func newReset(a *app) *cobra.Command {
	var f runFlags
	var of resetting
	p := plan{name: "reset", command: config.ForReset, phases: phases.Reset(), prepare: of.confirm, finish: of.finish}
	c := &cobra.Command{
		Use:   "reset",
		Short: "Remove this machine from its cluster and clean it up",
		Long: "Removes this node from its cluster and undoes everything that ocadm recorded in the ledger: files, programs, units, kernel settings.\n" +
			"Everything else stays, such as files and firewall rules of other programs. Reset lists what it removes and what stays, and asks first.\n" +
			"Each phase verifies its result and fails if anything is left. You can repeat reset. Data in volumes is kept. The Node object of a worker\n" +
			"stays, too: delete it on a control-plane node with kubectl delete node NAME.\n\n" +
			"If the cluster continues without this node, reset first shows the volumes on the node's disk, whether the database of the cloud is among\n" +
			"them, and the commands that keep it in service. Pods that use these volumes wait until a machine of the same name joins again.\n\n" +
			"On a compute node the node's address is usually on a bridge of Open vSwitch, which stops: the machine can lose its network. Virtual\n" +
			"machines keep running, but nothing manages them. Reset warns about this before it asks.\n\n" +
			"To reset the last control-plane node of a cluster that holds a cloud, type the name of the cloud or give --yes. One of several is not\n" +
			"reset while etcd needs it for its majority.",
		Example: `  # ask first
  ocadm reset

  # in a script
  ocadm reset --yes

  # reset and install again without importing all images again
  ocadm reset --yes --keep images && ocadm init --bundle ocadm.bundle

  # show what reset would do
  ocadm reset --dry-run`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runPlan(c, p, f) },
	}
	flags := func(fs *pflag.FlagSet, f *runFlags) {
		addSettings(fs, config.ForReset)
		addRunFlags(fs, f)
		hide(fs, "on-failure")
		hide(fs, "ignore-preflight-errors")
		addYes(fs, &f.run.Force)
		fs.BoolVarP(&f.run.Force, "force", "f", false, "the former name of --yes")
		hide(fs, "force")
		fs.BoolVar(&f.run.AbandonEtcd, "abandon-etcd", false, "reset a control-plane node although etcd has no majority without it: the cluster stops")
		fs.StringSliceVar(&f.run.Keep, "keep", nil, "what to keep on the machine: images, so that the next init does not have to import them")
	}
	flags(c.Flags(), &f)
	bindPhases(c, a, p, flags)
	return c
}

// otherNode returns the finding for a reset that names another node: it would delete that one from the cluster and etcd, and reset this machine.
func otherNode(named, is string) error {
	return finding.New("OCA-1057", "This machine is node "+is+", not "+named, "reset removes only the machine that it runs on from the cluster",
		"to reset this machine, leave out --node-name; to reset "+named+", run ocadm reset there, or if its machine is lost, on a control-plane node: ocadm node remove "+named)
}

// resetAskTimeout bounds the requests to a cluster that may no longer answer.
const resetAskTimeout = 8 * time.Second

type resetting struct {
	// lost is what the cluster loses with this machine.
	lost stake
	// recorded reports whether the ledger had anything to undo when the reset began.
	recorded bool
}

// confirm refuses a node that ocadm did not install. It always shows which volumes the cluster loses. It lists what reset removes and keeps, and asks
// for confirmation unless nothing of value would be removed.
func (of *resetting) confirm(ctx context.Context, a *app, h *host.Host) error {
	if foreign := owned.Foreign(h); len(foreign) > 0 && len(h.Ledger.Created()) == 0 {
		return finding.New("OCA-0413", "This machine is a Kubernetes node that ocadm did not install",
			"found "+strings.Join(foreign, ", ")+", but no ledger in "+host.LedgerFile, "use the tool that installed it, for example: ocadm kubeadm reset").With(foreign...)
	}
	of.recorded = len(h.Ledger.Created()) > 0
	if !h.Config.Run.AbandonEtcd {
		if err := etcdphase.MayLeave(ctx, h); err != nil {
			return err
		}
	}
	for _, line := range compute.Leaving(h) {
		a.warn("%s", line)
	}
	of.lost = stakeOf(ctx, h)
	of.lost.show(a.redact.Writer(a.Err))
	if h.Config.Run.Force || h.Config.Run.DryRun {
		return nil
	}
	inv, err := node.InventoryOf(ctx, h)
	if err != nil || !inv.Value {
		return err
	}
	question, word := "This removes the machine from its cluster and deletes its containers. Continue? [y/N]", "yes"
	switch clouds := of.lost.clouds; {
	case of.lost.last && len(clouds) > 0:
		word = clouds[0]
		question = fmt.Sprintf("This is the last control-plane node of a cluster that holds the cloud %s. Reset destroys the cloud.\nType the name of the cloud to continue:",
			strings.Join(clouds, ", "))
	case of.lost.unknown != nil && !of.lost.worker:
		question = "The cluster does not answer. If this is its last control-plane node, reset destroys the cluster and its clouds. Continue? [y/N]"
	case of.lost.last:
		question = "This is the last control-plane node. Reset destroys the cluster. Continue? [y/N]"
	}
	var p page
	p.list("Reset removes:", inv.Removes)
	p.list("These stay:", inv.Keeps)
	fmt.Fprint(a.Err, p.String())
	return a.ask(ctx, question, word, "Nothing was reset", "ocadm reset --yes")
}

// finish removes ocadm's own records. The logs stay.
func (of *resetting) finish(_ context.Context, a *app, h *host.Host, f runFlags) error {
	if len(f.run.SkipPhases) > 0 && h.Files.Any("/etc/kubernetes/manifests/*") {
		return nil // a partial reset still needs the records
	}
	left := h.Ledger.Created()
	if slices.ContainsFunc(left, func(e host.Entry) bool { return e.Kind != host.KindData }) {
		return nil // so does one that left files to restore
	}
	kept := len(left) > 0
	known := append(h.Files.Glob(host.StateDir+"/backup/*"), journalFile, host.StateDir+"/backup")
	if !kept { // the next run must know who owns the data that --keep left
		known = append(known, host.LedgerFile, host.StateDir)
	}
	for _, name := range known {
		if err := removeOwn(h.Files.Path(name)); err != nil {
			return fmt.Errorf("removing the records of this machine: %w", err)
		}
	}
	if f.output.String() == "jsonl" {
		data := map[string]string{"logs": logDir}
		if claims := of.lost.claims(); claims != "" {
			data["volumes"] = claims
		}
		return printResult(a, "reset", data)
	}
	if f.quiet {
		return nil
	}
	text := "\nThis machine is no longer a node. The logs are in %s. Data of local volumes was kept.\n"
	if !of.recorded {
		text = "\nThis machine is not a node: ocadm has no record of changes to it. The logs are in %s.\n"
	}
	_, err := fmt.Fprintf(a.Err, text, logDir)
	return err
}

// removeOwn removes a file or a directory. A directory with files of others, or on which a disk is mounted, stays, and so does a link to one.
func removeOwn(path string) error {
	if _, err := os.Readlink(path); err == nil {
		return nil
	}
	err := disk.Remove(path)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EBUSY) {
		return nil
	}
	return err
}

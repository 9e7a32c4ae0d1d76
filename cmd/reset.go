// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/owned"
)

func newReset(a *app) *cobra.Command {
	var f runFlags
	p := plan{name: "reset", command: config.ForReset, phases: phases.Reset(), prepare: confirmReset, finish: finishReset}
	c := &cobra.Command{
		Use:   "reset",
		Short: "Take this machine out of its cluster and clean it up",
		Long: "Removes the node, its pods and its files, and undoes what the ledger records that ocadm made on the machine. Everything else stays:\n" +
			"what was there before, and what other programs keep in the same directories and packet filter tables. Reset lists both and asks first.\n" +
			"Each phase checks that nothing is left, and fails where it finds something or cannot look. You can repeat reset. The data of volumes\n" +
			"stays. The Node object of a worker stays, too: on a control-plane node, run kubectl delete node NAME.\n\n" +
			"The last control-plane node of a cluster that holds a cloud is only reset with --force, or after the cloud's name was typed.",
		Example: `  # asks first
  ocadm reset

  # in a script
  ocadm reset --force

  # and set it up again, without importing all images once more
  ocadm reset --force --keep images && ocadm init --bundle ocadm.bundle

  # what would it do?
  ocadm reset --dry-run`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return a.runPlan(c, p, f) },
	}
	flags := func(fs *pflag.FlagSet, f *runFlags) {
		addSettings(fs, config.ForReset)
		addRunFlags(fs, f)
		hide(fs, "on-failure")
		hide(fs, "ignore-preflight-errors")
		fs.BoolVarP(&f.run.Force, "force", "f", false, "do not ask, not even for the last control-plane node of a cloud")
		fs.StringSliceVar(&f.run.Keep, "keep", nil, "what to leave on the machine: images, for the next init")
		fs.StringVar(&f.run.Kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: "+host.AdminKubeconfig+")")
	}
	flags(c.Flags(), &f)
	bindPhases(c, a, p, flags)
	return c
}

// resetAskTimeout bounds what reset asks a cluster that may be dying.
const resetAskTimeout = 8 * time.Second

// confirmReset refuses a node that ocadm did not make, and asks, with a list of what goes and what stays, before anything of value is
// removed. A machine without such things is not asked about.
func confirmReset(ctx context.Context, a *app, h *host.Host) error {
	if foreign := owned.Foreign(h); len(foreign) > 0 && len(h.Ledger.Created()) == 0 {
		return finding.Finding{Code: "OCA-0413", Severity: finding.Error, What: "This machine is a Kubernetes node, and nothing shows that ocadm made it one",
			Cause:  "there is " + strings.Join(foreign, ", ") + ", and no ledger in " + host.LedgerFile,
			Remedy: "remove it with the tool that made it, as with: kubeadm reset (ocadm has it built in: ocadm kubeadm reset)", Evidence: foreign}
	}
	if h.Config.Run.Force || h.Config.Run.DryRun {
		return nil
	}
	inv, err := node.InventoryOf(ctx, h)
	if err != nil || !inv.Value {
		return err
	}
	question, word := "This takes the machine out of its cluster and removes its containers. Go on? [y/N]", "yes"
	if h.Files.Exists(host.AdminKubeconfig) {
		clouds, last, err := lastControlPlane(ctx, h)
		switch {
		case err != nil:
			a.warn("the cluster does not tell what would be lost: %v", err)
		case last && len(clouds) > 0:
			word = clouds[0]
			question = fmt.Sprintf("This is the last control-plane node of a cluster that holds the cloud %s: the cloud ends with it.\nType the cloud's name to go on:",
				strings.Join(clouds, ", "))
		case last:
			question = "This is the last control-plane node: its cluster ends with it. Go on? [y/N]"
		}
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Reset removes:", inv.Removes}, {"It leaves:", inv.Keeps}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(a.Err, "%s\n  %s\n", part.title, strings.Join(part.lines, "\n  "))
		}
	}
	ok, err := ui.Confirm(ctx, a.In, a.Err, question, word, "--force")
	if err != nil {
		return err
	}
	if !ok {
		return finding.Finding{Code: "OCA-0406", Severity: finding.Error, What: "Nothing was reset", Cause: "it was not confirmed",
			Remedy: "ocadm reset, and answer; or ocadm reset --force"}
	}
	return nil
}

// lastControlPlane tells which clouds the cluster holds and whether no other control-plane node is there.
func lastControlPlane(ctx context.Context, h *host.Host) (clouds []string, last bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, resetAskTimeout)
	defer cancel()
	c, err := h.Kube(ctx)
	if err != nil {
		return nil, false, err
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.HasLabels{"node-role.kubernetes.io/control-plane"}); err != nil {
		return nil, false, fmt.Errorf("listing control-plane nodes: %w", err)
	}
	last = true
	for _, n := range nodes.Items {
		last = last && n.Name == h.Config.Node.Name
	}
	var list v1alpha1.OnecloudClusterList
	if err := c.List(ctx, &list); err == nil {
		for _, cr := range list.Items {
			clouds = append(clouds, cr.Name)
		}
	}
	return clouds, last, nil
}

// finishReset removes what ocadm knew of the machine. The logs stay.
func finishReset(_ context.Context, a *app, h *host.Host, f runFlags) error {
	if left, err := h.Files.Glob("/etc/kubernetes/manifests/*"); err == nil && len(f.run.SkipPhases) > 0 && len(left) > 0 {
		return nil // only a part was reset: what is known is still needed
	}
	left := h.Ledger.Created()
	kept := slices.ContainsFunc(left, func(e host.Entry) bool { return e.Kind == host.KindData })
	if len(left) > 0 && !kept {
		return nil
	}
	known := []string{journalFile, host.StateDir + "/backup"}
	if !kept { // whose the data is that --keep left, the next run must know
		known = append(known, host.LedgerFile, host.StateDir)
	}
	for _, name := range known {
		if err := removeOwn(h.Files.Path(name)); err != nil {
			return fmt.Errorf("removing what ocadm knew of this machine: %w", err)
		}
	}
	if f.output.String() == "jsonl" {
		return printResult(a, "reset", map[string]string{"logs": logDir})
	}
	if f.quiet {
		return nil
	}
	_, err := fmt.Fprintf(a.Err, "\nThis machine is no node any more. Its logs are in %s. The data of local volumes was left.\n", logDir)
	return err
}

// removeOwn removes a file, or a directory with the plain files in it; what holds more is left.
func removeOwn(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if filepath.Base(path) == "backup" && e.Type().IsRegular() {
				if err := os.Remove(filepath.Join(path, e.Name())); err != nil {
					return err
				}
			}
		}
		_ = os.Remove(path) // not empty: somebody else's things stay
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// stepFlags are how a command of steps runs that is not init, join or reset.
type stepFlags struct {
	dryRun, yes bool
	output      *ui.Choice
	// onFailure is what becomes of the steps before a failed one; "" keeps them.
	onFailure workflow.OnFailure
	// waits lets it wait for another ocadm on this machine: a pod of an earlier run of the same command may be at work.
	waits bool
}

func (f *stepFlags) add(c *cobra.Command) {
	f.output = ui.NewFormat("text", "json", "yaml")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what would be done, and change nothing")
	addYes(c.Flags(), &f.yes)
	c.Flags().VarP(f.output, "output", "o", "output format")
}

// controlPlaneHost is this machine as the node that it is, for the commands of day 2.
func controlPlaneHost(ctx context.Context, dryRun bool) (*host.Host, error) {
	cfg := config.Default()
	cfg.Run.DryRun = dryRun
	h, err := newHost(ctx, &cfg, "")
	if err != nil {
		return nil, err
	}
	completeHere(h)
	if m, err := kubernetes.OwnEtcd(h); err == nil { // kubeadm gives etcd the address of the API server
		if u, err := url.Parse(m.ClientURL); err == nil {
			h.Config.Node.AdvertiseAddress = u.Hostname()
		}
	}
	if address, port, ok := kubernetes.OwnEndpoint(h); ok {
		h.Config.Node.AdvertiseAddress, h.Config.Node.BindPort = address, port
	}
	return h, nil
}

// runSteps runs a plan under the lock of the machine, with its journal and a log. The story goes to standard error.
func runSteps[S any](ctx context.Context, a *app, h *host.Host, name string, inputs map[string]string, steps []workflow.Phase[S], s S, f stepFlags) (workflow.Result, error) {
	runner := workflow.Runner[S]{Plan: name, Phases: steps}
	opts := workflow.Options{DryRun: f.dryRun, Inputs: inputs, OnFailure: f.onFailure}
	if f.dryRun {
		res, err := runner.Run(ctx, s, opts)
		return res, err
	}
	unlock, err := a.lock(ctx, h, f.waits)
	if err != nil {
		return workflow.Result{}, err
	}
	defer unlock()
	journal := workflow.NewJournal(h.Files.Path(journalFile))
	journal.Redact = a.redact.Text
	log := ui.Quiet()
	defer a.openLog(h, strings.ReplaceAll(name, " ", "-"), &log)()
	renderer := ui.New(a.Err, ui.Options{Verbose: a.verbosity > 0, Color: os.Getenv("NO_COLOR") == ""})
	if err := note(renderer, name, journal, &opts); err != nil {
		return workflow.Result{}, err
	}
	runner.Journal, runner.Sink = journal, a.redacted(ui.Tee(renderer, log))
	opts.Stop = ctx
	res, err := runner.Run(Killed(ctx), s, opts)
	renderer.Close()
	if err != nil {
		return res, explainDisk(err)
	}
	a.logFile = "" // only a failure names it
	return res, nil
}

// lock keeps other runs of ocadm off this machine.
func (a *app) lock(ctx context.Context, h *host.Host, waits bool) (unlock func(), err error) {
	file := filepath.Join(h.Files.Path("/"), lockFile)
	if !waits {
		return workflow.Lock(file)
	}
	return workflow.AwaitLock(ctx, file, func(cause string) {
		fmt.Fprintf(a.Err, "waiting for another ocadm on this machine to end: %s\n", cause)
	})
}

// stepsText is what a plan did, or would do.
func stepsText(w io.Writer, res workflow.Result, nothing string) error {
	n := 0
	for _, s := range res.Steps {
		for _, line := range s.Changes {
			n++
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	if n == 0 {
		_, err := fmt.Fprintln(w, nothing)
		return err
	}
	return nil
}

// nextText are the commands that are left to a person.
func nextText(w io.Writer, next []string) error {
	for _, line := range next {
		if _, err := fmt.Fprintln(w, "next: "+line); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
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

// stepFlags control a command that runs steps, other than init, join and reset.
type stepFlags struct {
	dryRun, yes bool
	output      *ui.Choice
	// onFailure decides about the steps before a failed one; "" keeps them.
	onFailure workflow.OnFailure
	// waits makes it wait for another ocadm on this machine: a pod of an earlier run of the same command may still run.
	waits bool
	// pods makes it provide the image of the pods that the steps run on other nodes.
	pods bool
}

func (f *stepFlags) add(c *cobra.Command) {
	f.output = addOutput(c, "text")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what would be done, and change nothing")
	addYes(c.Flags(), &f.yes)
}

// controlPlaneHost returns this machine as a control-plane node, for day-2 commands.
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

// confirmSteps asks before the first change, except in a dry run.
func (a *app) confirmSteps(c *cobra.Command, f stepFlags, kept, question string) error {
	if f.dryRun {
		return nil
	}
	return a.confirm(c, f.yes, kept)(question)
}

// stepsRun is the result of a plan or its dry run. Commands that run steps include it in their output.
type stepsRun struct {
	DryRun bool       `json:"dryRun,omitempty"`
	Steps  []stepDone `json:"steps"`
	// Next lists the commands that remain for the user.
	Next []string `json:"next,omitempty"`
}

type stepDone struct {
	Name    string         `json:"name"`
	State   workflow.State `json:"state"`
	Reason  string         `json:"reason,omitempty"`
	Changes []string       `json:"changes,omitempty"`
	Seconds float64        `json:"seconds,omitempty"`
}

// noSteps returns the result of a plan with nothing left to do.
func noSteps(next ...string) stepsRun { return stepsRun{Steps: []stepDone{}, Next: next} }

// runSteps runs a plan under the lock of the machine, with its journal and a log. Progress goes to standard error.
func runSteps[S any](ctx context.Context, a *app, h *host.Host, name string, inputs map[string]string, steps []workflow.Phase[S], s S, f stepFlags) (stepsRun, error) {
	if f.pods {
		if err := a.usePodImage(ctx, h, f.dryRun); err != nil {
			return stepsRun{}, err
		}
	}
	res, err := runJournaled(ctx, a, h, name, inputs, steps, s, f)
	run := stepsRun{DryRun: f.dryRun, Steps: make([]stepDone, len(res.Steps))}
	for i, s := range res.Steps {
		run.Steps[i] = stepDone{Name: s.Name, State: s.State, Reason: s.Reason, Changes: s.Changes, Seconds: s.Duration.Seconds()}
	}
	return run, err
}

func runJournaled[S any](ctx context.Context, a *app, h *host.Host, name string, inputs map[string]string, steps []workflow.Phase[S], s S, f stepFlags) (workflow.Result, error) {
	runner := workflow.Runner[S]{Plan: name, Phases: steps}
	opts := workflow.Options{DryRun: f.dryRun, Inputs: inputs, OnFailure: f.onFailure}
	if f.dryRun {
		return runner.Run(ctx, s, opts)
	}
	unlock, err := a.lock(ctx, h, f.waits)
	if err != nil {
		return workflow.Result{}, err
	}
	defer unlock()
	defer outliveReaders()()
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

// printSteps prints out, which embeds a stepsRun. As text it prints the run only.
func (a *app) printSteps(f stepFlags, out interface{ text(*page, string) }, nothing string) error {
	return a.print(f.output, out, func(p *page) { out.text(p, nothing) })
}

func (r stepsRun) text(p *page, nothing string) {
	r.changes(p, nothing)
	p.next(r.Next)
}

// changes prints what the plan did, or would do.
func (r stepsRun) changes(p *page, nothing string) {
	var lines []string
	for _, s := range r.Steps {
		lines = append(lines, s.Changes...)
	}
	if len(lines) == 0 {
		lines = []string{nothing}
	}
	p.lines("", lines...)
}

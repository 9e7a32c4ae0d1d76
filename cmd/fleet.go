// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/cluster/fleet"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
)

func newFleet(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "fleet", Short: "Create a cluster of many machines from one file",
		Long: "A fleet is a file of machines: control-plane nodes and workers. These commands run on any machine that reaches them over SSH, and need\n" +
			"neither root nor a cluster. The journal, logs, host keys and the kubeconfig are in a directory beside the file.",
		Example: "  ocadm fleet example >fleet.yaml\n  ocadm fleet apply -f fleet.yaml --dry-run\n  ocadm fleet apply -f fleet.yaml",
	}, newFleetApply(a), newFleetStatus(a), newFleetReset(a), newFleetExample(a))
}

type fleetFlags struct {
	file, dir string
	parallel  int
	output    *ui.Choice
}

// fleetParallel is the default number of machines to work on concurrently.
const fleetParallel = 10

func (f *fleetFlags) add(c *cobra.Command) {
	f.output = addOutput(c, "text")
	fs := c.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "file with the fleet")
	fs.StringVar(&f.dir, "directory", "", "directory of the fleet: journal, logs, host keys, kubeconfig (default: FILE with the extension .fleet)")
	fs.IntVar(&f.parallel, "parallel", fleetParallel, "number of machines to work on at once")
}

// options reads the file and opens the directory of the fleet. The caller calls end.
func (f *fleetFlags) options(ctx context.Context, a *app, dryRun bool) (o fleet.Options, end func(), err error) {
	if f.file == "" {
		return o, nil, misused("-f is missing", "ocadm fleet apply -f fleet.yaml; ocadm fleet example prints one")
	}
	if f.parallel < 1 {
		return o, nil, misused(fmt.Sprintf("--parallel %d is not positive", f.parallel), "for example --parallel 10")
	}
	data, err := os.ReadFile(f.file)
	if err != nil {
		return o, nil, finding.Errorf("OCA-7640", "The fleet in "+f.file+" cannot be read", "give a file that exists; ocadm fleet example prints one", "%w", err)
	}
	spec, err := fleet.Read(f.file, data)
	if err != nil {
		return o, nil, err
	}
	f.dir = cmp.Or(f.dir, strings.TrimSuffix(f.file, filepath.Ext(f.file))+".fleet")
	program, err := os.Executable()
	if err != nil {
		return o, nil, fmt.Errorf("finding this program: %w", err)
	}
	renderer := ui.New(a.Err, ui.Options{Verbose: a.verbosity > 0, Color: os.Getenv("NO_COLOR") == ""})
	o = fleet.Options{
		Spec: spec, Dir: f.dir, Parallel: f.parallel, DryRun: dryRun, Program: program, Sink: a.redacted(renderer), Stop: ctx,
		Secret: a.redact.Add, Redact: a.redact.Text,
	}
	if !dryRun {
		if err := os.MkdirAll(f.dir, 0o700); err != nil {
			return o, nil, finding.Errorf("OCA-7640", "The directory of the fleet cannot be created", "give another one: --directory DIR", "%w", err)
		}
		stamp := time.Now().UTC().Format("20060102T150405Z")
		o.Log = func(machine string) (workflow.Sink, string, func(), error) { return a.fleetLog(f.dir, stamp, machine) }
	}
	return o, renderer.Close, nil
}

func (a *app) fleetLog(dir, stamp, machine string) (workflow.Sink, string, func(), error) {
	dir = filepath.Join(dir, "logs")
	path := filepath.Join(dir, stamp+"-"+machine+".log")
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return nil, "", nil, fmt.Errorf("opening the log of %s: %w", machine, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, "", nil, fmt.Errorf("opening the log of %s: %w", machine, err)
	}
	lines := ui.Lines(stamped{a.redact.Writer(file)}, ui.Options{Verbose: true})
	return a.redacted(lines), path, func() { _ = file.Close() }, nil // every line has been written
}

// stamped prefixes output with the time.
type stamped struct{ w io.Writer }

func (s stamped) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, time.Now().UTC().Format("15:04:05.000 ")); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}

func newFleetApply(a *app) *cobra.Command {
	var f fleetFlags
	var dryRun bool
	var ignore []string
	c := &cobra.Command{
		Use: "apply", Short: "Create the cluster that a file describes, or complete it",
		Long: "Logs in to every machine, and checks and compares all of them before it changes anything. Then it runs init on the first control-plane\n" +
			"node, joins the other control-plane nodes one after another, and then the workers, several at once. Each worker becomes an\n" +
			"OnecloudMachine of the cloud. A worker that fails does not stop the others; if the control plane fails, no worker starts. After a\n" +
			"failure or an interruption, run it again: it continues where it stopped. After a success, it changes nothing. It names machines that are\n" +
			"no longer in the file, and leaves them in the cluster.",
		Example: "  ocadm fleet apply -f fleet.yaml --dry-run\n  ocadm fleet apply -f fleet.yaml --parallel 20\n" +
			"  ocadm fleet apply -f fleet.yaml -o json | jq '.machines[] | select(.state == \"failed\")'",
		RunE: func(c *cobra.Command, _ []string) error {
			o, end, err := f.options(c.Context(), a, dryRun)
			if err != nil {
				return err
			}
			o.Ignore = ignore
			res, err := fleet.Apply(Killed(c.Context()), o)
			end()
			if len(res.Machines) == 0 {
				return err
			}
			return errors.Join(a.printFleet(f.output, res, dryRun), err)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check the machines and print what would be done; change nothing")
	c.Flags().StringSliceVar(&ignore, "ignore-preflight-errors", nil, "checks whose errors become warnings; only Ways, the traffic between machines")
	return c
}

func (a *app) printFleet(output *ui.Choice, res fleet.Result, dryRun bool) error {
	err := a.print(output, res, func(p *page) {
		var rows [][]string
		changed := false
		for _, m := range res.Machines {
			changed = changed || m.State != fleet.Unchanged
			text := m.Reason
			for _, one := range m.Findings {
				if one.Severity == finding.Error {
					text = one.Code + " " + one.Error()
					break
				}
			}
			rows = append(rows, []string{m.Name, m.Role, m.Address, string(m.State), fmt.Sprintf("%.0fs", m.Seconds), text})
			if m.State == fleet.Planned {
				for _, line := range m.Changes {
					rows = append(rows, []string{"", "", "", "", "", "would: " + line})
				}
			}
		}
		p.table([]string{"MACHINE", "ROLE", "ADDRESS", "STATE", "TIME", "MESSAGE"}, rows)
		if !changed {
			p.line("Nothing was changed: every machine matches the file.")
		}
	})
	if err != nil || output.String() != "text" {
		return err
	}
	for _, name := range res.Removed {
		fmt.Fprintf(a.Err, "%s is no longer in the file, and stays in the cluster; to remove it: ocadm machine remove %s\n", name, name)
	}
	if res.Kubeconfig != "" && !dryRun {
		fmt.Fprintf(a.Err, "\nThe administrator's kubeconfig is in %s\n", res.Kubeconfig)
	}
	return nil
}

func newFleetStatus(a *app) *cobra.Command {
	var f fleetFlags
	c := &cobra.Command{
		Use: "status", Short: "Show the state of the machines of a file",
		Long:    "Logs in to every machine and reads its Node from the cluster. It changes nothing, and fails unless every machine answers and is a Ready node.",
		Example: "  ocadm fleet status -f fleet.yaml\n  ocadm fleet status -f fleet.yaml -o json | jq '.[] | select(.node != \"Ready\")'",
		RunE: func(c *cobra.Command, _ []string) error {
			o, end, err := f.options(c.Context(), a, true)
			if err != nil {
				return err
			}
			all, err := fleet.Status(c.Context(), o)
			end()
			if len(all) == 0 {
				return err
			}
			return errors.Join(a.print(f.output, all, func(p *page) {
				table(p, []string{"MACHINE", "ROLE", "ADDRESS", "ANSWERS", "NODE", "PHASE", "MESSAGE"}, all, func(m fleet.MachineStatus) []string {
					return []string{m.Name, m.Role, m.Address, yesNo(m.Answers), cmp.Or(m.Node, "-"), cmp.Or(m.Phase, "-"), m.Message}
				})
			}), err)
		},
	}
	f.add(c)
	return c
}

func newFleetReset(a *app) *cobra.Command {
	var f fleetFlags
	var yes bool
	c := &cobra.Command{
		Use: "reset", Short: "Remove the cluster from every machine of a file",
		Long: "Runs ocadm reset on every machine: the workers first, the first node last. The cloud is lost; volumes keep their data. A machine that\n" +
			"fails does not stop the others. A machine of another cluster, or one on which virtual machines run, is not changed.",
		Example: "  ocadm fleet reset -f fleet.yaml\n  ocadm fleet reset -f fleet.yaml --yes -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			o, end, err := f.options(c.Context(), a, false)
			if err != nil {
				return err
			}
			defer end()
			what := "This removes the cluster and the cloud from " + lists.Counted(len(o.Spec.ControlPlanes)+len(o.Spec.Workers), "machine") + ", all of " + f.file
			if err := a.confirm(c, yes, "Nothing was reset")(what); err != nil {
				return err
			}
			res, err := fleet.Reset(Killed(c.Context()), o)
			if len(res.Machines) == 0 {
				return err
			}
			return errors.Join(a.printFleet(f.output, res, true), err)
		},
	}
	f.add(c)
	addYes(c.Flags(), &yes)
	return c
}

func newFleetExample(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "example", Short: "Print an example file", Long: "Prints a file of a fleet with all fields and comments.",
		Example: "  ocadm fleet example\n  ocadm fleet example >fleet.yaml",
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.Out, fleet.Example)
			return err
		},
	}
}

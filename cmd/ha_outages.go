// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/nodefault"
	"yunion.io/x/ocadm/phases/ha"
)

type haTested struct {
	APIGoal     float64 `json:"apiGoalSeconds"`
	ConsoleGoal float64 `json:"consoleGoalSeconds"`
	// Console is the address at which a console was probed; "" if none answered.
	Console string `json:"console,omitempty"`
	// Silent is where a console should have answered before the test, but did not: it was not measured.
	Silent string       `json:"silentConsole,omitempty"`
	Faults []ha.Outcome `json:"faults"`
	Met    bool         `json:"met"`
	// NotCutOff lists the control-plane nodes whose loss was not tested, with what runs only there.
	NotCutOff []ha.NotCutOff `json:"notCutOff,omitempty"`
	stepsRun
}

func newHATest(a *app) *cobra.Command {
	f := stepFlags{pods: true}
	var cut string
	c := &cobra.Command{
		Use: "test", Short: "Take down parts of the control plane, measure each outage, and restore them",
		Long: "Takes down, in turn, keepalived on the node with the virtual address, the API server there, the leader of etcd, and a whole node, which\n" +
			"it cuts off for 45 seconds. Meanwhile it writes to the API and requests the console four times a second, each time as a new client.\n" +
			"After each fault it waits until everything is healthy again, and compares the outage with the goals: at most 10 seconds without an answer\n" +
			"from the API, at most 30 from the console, and no acknowledged write lost. The next fault begins when the pods that were ready before the\n" +
			"test are ready again, or after two minutes. Run it on a control-plane node, at a quiet time: pods of the node that is cut off move to\n" +
			"others.\n\n" +
			"It cuts off one node, never the one that it runs on: it names the others, and what runs only on them. To test the loss of a specific node,\n" +
			"run it on another one with --node.\n\n" +
			"It refuses a control plane that is not healthy. Each fault ends by itself after its time, even if this command or its machine dies, and\n" +
			"changes no file, so restarting the node also ends it. The first Ctrl-C ends the test after the present fault, the second ends the fault\n" +
			"at once. If the command was killed, the next run first undoes what is left. Exit status 41 and OCA-4171 if a goal was missed.",
		Example: "  # show which nodes would be taken down\n  ocadm ha test --dry-run\n\n  ocadm ha test\n\n  # then on node2: cut off the first node\n" +
			"  ocadm ha test --node node1\n\n" +
			"  ocadm ha test --yes -o json | jq .met",
		RunE: func(c *cobra.Command, _ []string) error { return a.testHA(c, cut, f) },
	}
	f.add(c)
	c.Flags().StringVar(&cut, "node", "", "control-plane node to cut off, not this one (default: the one with the virtual address, unless that is this node)")
	return c
}

func (a *app) testHA(c *cobra.Command, cut string, f stepFlags) error {
	ctx := c.Context()
	h, err := controlPlaneHost(ctx, f.dryRun)
	if err != nil {
		return err
	}
	t, err := ha.Begin(ctx, h, func(why string) { fmt.Fprintln(a.Err, "waiting for the API server: "+why) })
	if err != nil {
		return noCluster(err)
	}
	if err := t.CutOff(ctx, cut); err != nil {
		return err
	}
	question := "This takes down parts of the control plane, and one node for 45 seconds, from which pods move to others. Clients are cut off for some seconds each time"
	if err := a.confirmSteps(c, f, "Nothing was tested", question); err != nil {
		return err
	}
	run, err := runSteps(ctx, a, h, "ha test", map[string]string{"--node": cut}, ha.Steps(), t, f)
	out := haTested{APIGoal: ha.APIGoal.Seconds(), ConsoleGoal: ha.ConsoleGoal.Seconds(), Console: t.Console, Silent: t.Silent, Faults: append([]ha.Outcome{}, t.Outcomes...),
		Met: !slices.ContainsFunc(t.Outcomes, func(o ha.Outcome) bool { return !o.Met }), stepsRun: run}
	if err != nil && len(out.Faults) == 0 {
		return err
	}
	if err == nil {
		if out.NotCutOff, err = t.NotCutOff(ctx); err != nil {
			a.warn("cannot determine what runs on the nodes that were not cut off: %v", err)
			err = nil
		}
	}
	if perr := a.printHATested(f, out); err != nil || perr != nil {
		return errors.Join(err, perr)
	}
	if !out.Met {
		return finding.New("OCA-4171", "The control plane missed a goal", "the goals are 10 seconds for the API, 30 for the console, and no lost write",
			"see the table; ocadm explain OCA-4171")
	}
	return nil
}

func (a *app) printHATested(f stepFlags, out haTested) error {
	return a.print(f.output, out, func(p *page) {
		if out.DryRun {
			out.changes(p, "Nothing to do")
			printNotCutOff(p, out.NotCutOff)
			return
		}
		rows := [][]string{{"(goals)", "", seconds(out.APIGoal), seconds(out.ConsoleGoal), "0", ""}}
		for _, o := range out.Faults {
			console := "-"
			if o.Console != nil {
				console = seconds(*o.Console)
			}
			rows = append(rows, []string{o.Fault, o.Node, seconds(o.API), console, fmt.Sprintf("%d of %d", o.Lost, o.Written), seconds(o.Whole)})
		}
		p.table([]string{"FAULT", "NODE", "API OUTAGE", "CONSOLE OUTAGE", "WRITES LOST", "HEALTHY AFTER"}, rows)
		p.line("%s", out.measured())
		printNotCutOff(p, out.NotCutOff)
	})
}

// printNotCutOff prints whose loss was not tested, and how to test it.
func printNotCutOff(p *page, nodes []ha.NotCutOff) {
	for _, n := range nodes {
		where := "on this or another node"
		if n.Own {
			where = "on another control-plane node"
		}
		runs := "nothing runs only there"
		if len(n.Runs) > 0 {
			runs = "only there: " + strings.Join(n.Runs, "; ")
		}
		p.line("\nnot cut off: %s; %s\n  to test its loss, %s: ocadm ha test --node %s", n.Node, runs, where, n.Node)
	}
}

// measured describes which console was probed.
func (o haTested) measured() string {
	switch {
	case o.Console != "":
		return "\nthe console was requested at https://" + o.Console + "/"
	case o.Silent != "":
		return "\nthe console was not measured: it did not answer at https://" + o.Silent + "/ before the test; ocadm cluster status"
	}
	return "\nno cloud, so no console was measured"
}

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

// newHAFault returns the command that runs on the node that a test takes down.
func newHAFault() *cobra.Command {
	var length time.Duration
	c := &cobra.Command{
		Use: "fault KIND", Short: "Break a part of this node for a while", Hidden: true,
		Long: "Breaks a part of the control-plane node for a while, as a transient unit of its systemd. The pod ocadm-ha-test runs it; it needs the\n" +
			"processes of the machine and all permissions.",
		Example: "  ocadm ha fault pause-etcd --for 15s\n  ocadm ha fault cut-node --for 45s",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			kind := nodefault.Kind(args[0])
			if !slices.Contains(nodefault.Kinds(), kind) || length <= 0 {
				return misused(fmt.Sprintf("%s for %s is not a fault", args[0], length), fmt.Sprintf("one of %v, with --for", nodefault.Kinds()))
			}
			if err := nodefault.Enter(); err != nil {
				return err
			}
			return nodefault.Fault{Kind: kind, For: length, Root: "/", Exec: exec.Machine{}}.Run(c.Context())
		},
	}
	c.Flags().DurationVar(&length, "for", 0, "how long")
	return c
}

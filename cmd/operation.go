// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// newOperation groups the commands that show and control the operations of clouds.
func newOperation(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "operation",
		Short: "Show, pause, resume and cancel the operations of clouds",
		Long: "An operation changes a cloud in steps. It is a resource of kind OnecloudOperation, short name oco. The operator runs one at a time for each cloud,\n" +
			"records each step, and, if it is killed, continues where it stopped. Backups, restores and moves of databases run in the program that\n" +
			"requests them, also one at a time. Operations of machines and renewals of certificates run beside these. Each cloud keeps its last 20\n" +
			"operations and, in addition, its last 10 backups.",
		Example: "  ocadm operation list\n  ocadm operation show NAME\n  ocadm operation cancel NAME",
	}, newOperationList(a), newOperationShow(a), newOperationLogs(a), newOperationCheck(a),
		newOperationControl(a, "pause", v1alpha1.OperationPause, "Pause an operation after its current step",
			"The current step runs to its end. The cloud then does not change until ocadm operation resume or cancel."),
		newOperationControl(a, "resume", "", "Resume a paused operation",
			"The operation continues with the step at which it stopped. It tries a failed step again, and its time limit starts again. If databases\n"+
				"were copied, the command prints the age of the copies: reverting replaces what was written since."),
		newOperationControl(a, "cancel", v1alpha1.OperationCancel, "End an operation and revert what it changed",
			"A running operation stops at once and reverts what it changed. A waiting operation ends without having started. If an operation is\n"+
				"paused because it could not revert its changes, cancel stops the attempts."))
}

func newOperationList(a *app) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use: "list", Short: "List the operations of the cloud",
		Long:    "Lists the operations of the cloud, the latest first.",
		Example: "  ocadm operation list\n  ocadm operation list -o json | jq -r '.[0].status.phase'",
	}, "table", func(ctx context.Context, k client.WithWatch, _ []string) ([]cluster.Operation, error) {
		return cluster.Operations(ctx, k, f.namespace, f.name)
	}, operationTable)
}

func operationTable(p *page, list []cluster.Operation) {
	if len(list) == 0 {
		p.line("no operations")
		return
	}
	table(p, []string{"NAME", "ACTION", "PHASE", "STEP", "AGE", "REQUESTER", "MESSAGE"}, list, func(o cluster.Operation) []string {
		return []string{o.Name, o.Spec.Action, cmp.Or(string(o.Status.Phase), "-"), cmp.Or(o.Status.Step, "-"),
			time.Since(o.CreationTimestamp.Time).Round(time.Second).String(), cmp.Or(o.Spec.Requester, "-"), cluster.MessageLine(&o)}
	})
}

func newOperationShow(a *app) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use: "show NAME", Short: "Show the plan and the steps of an operation",
		Long:    "Shows what an operation does, its steps with their times and results, and why it failed.",
		Example: "  ocadm operation show update-x7k2p\n  ocadm operation show update-x7k2p -o yaml",
		Args:    cobra.ExactArgs(1),
	}, "tree", func(ctx context.Context, k client.WithWatch, args []string) (*cluster.Operation, error) {
		return cluster.OperationOf(ctx, k, f.named(args[0]))
	}, func(p *page, o *cluster.Operation) { p.lines("", cluster.OperationTree(o, time.Now())...) })
}

func newOperationLogs(a *app) *cobra.Command {
	var f cloudFlags
	c := &cobra.Command{
		Use: "logs NAME", Short: "Print the log of an operation",
		Long:    "Prints the messages of the steps of an operation, one per line; with -o jsonl as events (docs/reference/events.md).",
		Example: "  ocadm operation logs update-x7k2p\n  ocadm operation logs update-x7k2p -o jsonl | jq -r .message",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				o, err := cluster.OperationOf(ctx, k, f.named(args[0]))
				if err != nil {
					return err
				}
				text, err := cluster.LogOf(ctx, k, o)
				if err != nil {
					return err
				}
				if f.output.String() == "text" {
					text = logText(text)
				}
				_, err = io.WriteString(a.Out, text)
				return err
			})
		},
	}
	f.add(a, c, nil, "text", "jsonl")
	return c
}

// logText formats a log for users.
func logText(lines string) string {
	var out strings.Builder
	for line := range strings.Lines(lines) {
		var e workflow.Event
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		text := e.Message
		if e.Why != "" {
			text += ": " + e.Why
		}
		fmt.Fprintf(&out, "%s %-14s %s %s\n", e.Time.UTC().Format(time.RFC3339), e.Type, cmp.Or(e.Phase, "-"), text)
		for _, f := range e.Findings {
			fmt.Fprintf(&out, "    %s %s; %s\n", f.Code, f.Error(), f.Remedy)
		}
	}
	return out.String()
}

func newOperationCheck(a *app) *cobra.Command {
	var f cloudFlags
	var version string
	var downgrade bool
	c := &cobra.Command{
		Use: "check", Short: "Run the checks of an update without changing anything",
		Long: "Creates an operation that checks whether the cloud can be updated: components, certificates, nodes, databases. With --version, it also\n" +
			"checks the update to that version and has the nodes pull its images, so that a later update finds them there. It does not change the\n" +
			"cloud.",
		Example: "  ocadm operation check\n  ocadm operation check --version v4.0.5\n  ocadm operation check -o json | jq '.status.findings'",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkVersion(c, version); err != nil {
				return err
			}
			o := &cluster.Operation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: f.name, Action: v1alpha1.ActionCheck, Requester: requester()}}
			if version != "" {
				o.Spec.Update = &v1alpha1.UpdateParameters{Version: version, AllowDowngrade: downgrade}
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error { return a.operate(ctx, k, &f, o) })
		},
	}
	f.add(a, c, nil, "table", "json", "yaml", "jsonl")
	f.addWait(c.Flags(), true, "wait until it ends")
	c.Flags().StringVar(&version, "version", "", "version of the cloud to check an update to")
	c.Flags().BoolVar(&downgrade, "allow-downgrade", false, "accept an earlier release")
	return c
}

func newOperationControl(a *app, name, value, short, long string) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use: name + " NAME", Short: short, Long: long,
		Example: "  ocadm operation " + name + " update-x7k2p\n  ocadm operation " + name + " update-x7k2p -o json",
		Args:    cobra.ExactArgs(1),
	}, "table", func(ctx context.Context, k client.WithWatch, args []string) (outcome, error) {
		note := ""
		if value == "" {
			o, err := cluster.OperationOf(ctx, k, f.named(args[0]))
			if err != nil {
				return outcome{}, err
			}
			note = operation.Resumed(&o.Status, time.Now())
		}
		changed, err := cluster.Control(ctx, k, f.named(args[0]), value)
		out := f.outcome("unchanged").of("Operation", args[0])
		if changed {
			out.Action, out.note = map[string]string{"pause": "will pause after its current step", "resume": "continues", "cancel": "is cancelled"}[name], note
		}
		return out, err
	}, printOutcome)
}

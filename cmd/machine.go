// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
)

// newMachine groups the commands for machines that the operator joins.
func newMachine(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "machine",
		Short: "Join machines over SSH, watch them and remove them",
		Long: "A machine is a resource of kind OnecloudMachine, short name ocm. The operator logs in to it over SSH, checks it, installs the node's software and\n" +
			"joins it; when the resource is deleted, it drains the node and cleans the machine up. Each task on a machine is an operation.",
		Example: "  ocadm machine add worker-1 --address 192.0.2.21 --key ~/.ssh/id_ed25519 --roles compute --wait\n  ocadm machine list\n  ocadm machine remove worker-1 --wait",
	}, newMachineList(a), newMachineGet(a), newMachineAdd(a), newMachinePrecheck(a),
		newMachineRemove(a), newMachineBootstrapData(a), newMachineCallIn(a), newMachineProbe(a),
		newMachineMark(a, "pause", "Keep a machine from joining until it is resumed",
			"The operator still creates bootstrap data and runs the prechecks that you request, but nothing else. It does not stop what is already running.",
			"paused", cluster.PauseMachine),
		newMachineMark(a, "resume", "Let a paused machine join", "Ends ocadm machine pause, and the pause of machines that were added for a precheck.",
			"resumed", cluster.ResumeMachine),
		newMachineMark(a, "retry", "Retry what failed on a machine",
			"Use it after you have corrected the cause that a Failed machine reports. The operator retries temporary errors by itself.",
			"will be retried", cluster.RetryMachine))
}

func newMachineList(a *app) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use: "list", Short: "List the machines of the cloud", Long: "Lists the machines of the cloud with their phases and what they wait for.",
		Example: "  ocadm machine list\n  ocadm machine list -o json | jq -r '.[] | select(.status.phase == \"Failed\") | .metadata.name'",
	}, "table", func(ctx context.Context, k client.WithWatch, _ []string) ([]cluster.Machine, error) {
		return cluster.Machines(ctx, k, f.namespace, f.name)
	}, machineTable)
}

func machineTable(p *page, list []cluster.Machine) {
	if len(list) == 0 {
		p.line("no machines")
		return
	}
	table(p, []string{"NAME", "ADDRESS", "ROLES", "PHASE", "AGE", "MESSAGE"}, list, func(m cluster.Machine) []string {
		roles := lists.Map(m.Spec.Roles, func(r v1alpha1.MachineRole) string { return string(r) })
		return []string{m.Name, cmp.Or(addressOf(&m), "-"), cmp.Or(strings.Join(roles, ","), "-"), cmp.Or(string(m.Status.Phase), "-"),
			time.Since(m.CreationTimestamp.Time).Round(time.Second).String(), cmp.Or(m.Status.FailureMessage, m.Status.Message)}
	})
}

// addressOf returns the SSH address of a machine; for one that calls in, the address of its Node.
func addressOf(m *cluster.Machine) string {
	if m.CallsIn() && len(m.Status.Addresses) > 0 {
		return m.Status.Addresses[0].Address
	}
	return m.Spec.Infrastructure.SSH.Address
}

func newMachineGet(a *app) *cobra.Command {
	var f cloudFlags
	var last *cluster.Operation
	return showsCloud(a, &f, &cobra.Command{
		Use: "get NAME", Short: "Show a machine and its conditions",
		Long:    "Shows the phase of a machine, its conditions, its host key, the last operation on it with its findings, and what to do next.",
		Example: "  ocadm machine get worker-1\n  ocadm machine get worker-1 -o json | jq -r .status.failureMessage",
		Args:    cobra.ExactArgs(1),
	}, "table", func(ctx context.Context, k client.WithWatch, args []string) (*cluster.Machine, error) {
		m, err := cluster.MachineOf(ctx, k, f.named(args[0]))
		if err == nil {
			last, err = cluster.LastOperation(ctx, k, m)
		}
		return m, err
	}, func(p *page, m *cluster.Machine) { printMachine(p, m, last) })
}

func printMachine(p *page, m *cluster.Machine, last *cluster.Operation) {
	s := m.Status
	lines := [][2]string{
		{"Machine", m.Name}, {"Cloud", m.Spec.Cloud}, {"Address", addressOf(m)}, {"Phase", cmp.Or(string(s.Phase), "unknown")},
		{"Message", s.Message}, {"Failure", s.FailureMessage}, {"Host key", s.HostKey}, {"Operation", s.Operation},
	}
	if last != nil {
		lines[len(lines)-1][1] = strings.TrimSuffix(fmt.Sprintf("%s %s: %s", last.Name, cmp.Or(string(last.Status.Phase), "new"), last.Status.Message), ": ")
		for _, one := range last.Status.Findings {
			lines = append(lines, [2]string{"Found", fmt.Sprintf("%s %s: %s; %s", one.Code, one.What, one.Cause, one.Remedy)})
		}
	}
	for _, line := range append(lines, [2]string{"Next", cluster.Next(m, last)}) {
		if line[1] != "" {
			p.line("%-10s %s", line[0], line[1])
		}
	}
	var rows [][]string
	for _, kind := range []string{
		v1alpha1.ConditionInfrastructureReady, v1alpha1.ConditionBootstrapDataReady, v1alpha1.ConditionHostReachable, v1alpha1.ConditionPrecheckPassed,
		v1alpha1.ConditionJoined, v1alpha1.ConditionNodeReady, v1alpha1.ConditionAgentsReady,
	} {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
			rows = append(rows, []string{kind, string(c.Status), c.Reason, c.Message})
		}
	}
	p.line("")
	p.table([]string{"CONDITION", "STATUS", "REASON", "MESSAGE"}, rows)
}

func newMachineRemove(a *app) *cobra.Command {
	var f cloudFlags
	var yes, abandon bool
	c := &cobra.Command{
		Use: "remove NAME", Short: "Remove a machine from the cluster",
		Long: "Deletes the resource of a machine. The operator moves its pods to other nodes, runs ocadm reset on it, which verifies its work, and\n" +
			"deletes the Node. While virtual machines run there, it changes nothing, and tries again. A machine that no longer answers stays until\n" +
			"you use --abandon: then nothing is done on the machine itself.",
		Example: "  ocadm machine remove worker-1 --wait\n\n  # the machine is lost\n  ocadm machine remove worker-1 --abandon --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			what := fmt.Sprintf("This removes machine %s from the cluster, and what ocadm installed on it", args[0])
			if abandon {
				what = fmt.Sprintf("This removes machine %s from the cluster and changes nothing on the machine itself", args[0])
			}
			if err := a.confirm(c, yes, "Nothing was removed")(what); err != nil {
				return err
			}
			return showCloud(a, &f, c, func(ctx context.Context, k client.WithWatch) (outcome, error) {
				there, err := cluster.RemoveMachine(ctx, k, f.named(args[0]), abandon, f.wait, func(why string) { fmt.Fprintf(a.Err, "%s: %s\n", args[0], why) })
				action := "unchanged"
				switch {
				case there && f.wait:
					action = "removed"
				case there:
					action = "is being removed"
				}
				return f.outcome(action).of("Machine", args[0]), err
			}, printOutcome)
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), false, "wait until it is gone")
	addYes(c.Flags(), &yes)
	c.Flags().BoolVar(&abandon, "abandon", false, "do nothing on the machine itself: it no longer answers")
	return c
}

func newMachineMark(a *app, name, short, long, done string, marks func(time.Time) map[string]string) *cobra.Command {
	var f cloudFlags
	return showsCloud(a, &f, &cobra.Command{
		Use: name + " NAME", Short: short, Long: long,
		Example: "  ocadm machine " + name + " worker-1\n  ocadm machine " + name + " worker-1 -o json",
		Args:    cobra.ExactArgs(1),
	}, "table", func(ctx context.Context, k client.WithWatch, args []string) (outcome, error) {
		changed, err := cluster.MarkMachine(ctx, k, f.named(args[0]), marks(time.Now()))
		action := "unchanged"
		if changed {
			action = done
		}
		return f.outcome(action).of("Machine", args[0]), err
	}, printOutcome)
}

func newMachineBootstrapData(a *app) *cobra.Command {
	var f cloudFlags
	format := ui.NewFormat("cloud-init", "ignition", "script")
	c := &cobra.Command{
		Use: "bootstrap-data NAME", Short: "Print the data with which a machine joins by itself",
		Long: "Prints user data for the first boot of a machine: it downloads ocadm from the depot of the cluster, whose authority is in the data, and\n" +
			"joins. The data contains a join token that is valid for two hours; the operator renews it until the machine has joined. Treat it as a secret.",
		Example: "  ocadm machine bootstrap-data worker-1 >user-data\n  ocadm machine bootstrap-data worker-1 --format ignition >worker-1.ign",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				text, err := cluster.BootstrapData(ctx, k, f.named(args[0]), format.String())
				if err != nil {
					return err
				}
				_, err = io.WriteString(a.Out, text)
				return err
			})
		},
	}
	f.add(a, c, nil)
	c.Flags().Var(format, "format", "format of the data: cloud-init, ignition or script")
	return c
}

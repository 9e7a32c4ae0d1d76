// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/probe"
)

type prechecked struct {
	Machine   string `json:"machine"`
	Operation string `json:"operation"`
	Passed    bool   `json:"passed"`
	Message   string `json:"message,omitempty"`
	// Compared lists the machines that were compared; "machine" is then empty. Ways describes the connections tested between them.
	Compared []string                    `json:"compared,omitempty"`
	Ways     string                      `json:"ways,omitempty"`
	Findings []v1alpha1.OperationFinding `json:"findings"`
}

func newMachinePrecheck(a *app) *cobra.Command {
	var f cloudFlags
	var file string
	c := &cobra.Command{
		Use: "precheck [NAME]...", Short: "Check machines, and change nothing on them",
		Long: "The operator logs in to each machine and runs the checks of join there. Then it compares the machines with each other and with a\n" +
			"control-plane node: identities, clocks, MTUs, and the ports that they need between each other, in both directions. With -f, machines\n" +
			"that do not exist are added first, and do not join before ocadm machine resume. The command fails if a check of a machine fails.",
		Example: "  ocadm machine precheck worker-1\n  ocadm machine precheck -f machines.yaml -o json | jq '.[] | select(.passed | not)'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, names []string) error {
			if (len(names) > 0) == (file != "") {
				return misused("give either names of machines, or -f FILE", "ocadm machine precheck worker-1")
			}
			var all []cluster.Machine
			if file != "" {
				var err error
				if all, err = readMachines(a, file, &f); err != nil {
					return err
				}
				for i := range all {
					pause(&all[i])
					names = append(names, all[i].Name)
				}
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				report := func(name, action string) { fmt.Fprintf(a.Err, "Machine %s %s\n", name, action) }
				if err := cluster.AddMachines(ctx, k, all, nil, report); err != nil {
					return err
				}
				results, err := cluster.Precheck(ctx, k, f.key(), names, requester())
				if err != nil {
					return err
				}
				compared, err := compareMachines(ctx, k, &f, results)
				if err != nil {
					return err
				}
				return a.printPrechecked(&f, results, compared)
			})
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	f.addWait(c.Flags(), true, "wait for the results")
	_ = c.Flags().MarkHidden("wait")
	c.Flags().StringVarP(&file, "file", "f", "", "file with OnecloudMachines; - is standard input")
	return c
}

// compareMachines compares the machines that could be logged in to. It returns nil if the operator does not support this.
func compareMachines(ctx context.Context, k client.WithWatch, f *cloudFlags, all []cluster.Operation) (*cluster.Operation, error) {
	names := lists.Pick(all, func(o cluster.Operation) (string, bool) {
		return o.MachineName(), o.Status.Machine != nil && o.Status.Machine.HostKey != ""
	})
	if len(names) == 0 {
		return nil, nil
	}
	return cluster.Compare(ctx, k, f.key(), names, requester())
}

func (a *app) printPrechecked(f *cloudFlags, all []cluster.Operation, compared *cluster.Operation) error {
	var out []prechecked
	if compared != nil {
		all = append(all, *compared)
	}
	for _, o := range all {
		p := prechecked{Machine: o.MachineName(), Operation: o.Name, Passed: o.Status.Phase == v1alpha1.OperationSucceeded, Message: o.Status.Message,
			Findings: o.Status.Findings}
		if o.Spec.Action == v1alpha1.ActionCompareMachines {
			p.Machine, p.Compared = "", append([]string{p.Machine}, o.Spec.Machine.Others...)
			if o.Status.Machine != nil {
				p.Ways = o.Status.Machine.Ways
			}
		}
		if p.Findings == nil {
			p.Findings = []v1alpha1.OperationFinding{}
		}
		out = append(out, p)
	}
	err := a.print(f.output, out, func(p *page) {
		var rows [][]string
		for _, m := range out {
			of, message := m.Machine, m.Message
			if m.Machine == "" {
				of, message = "all", cmp.Or(m.Ways, m.Message)
			}
			if len(m.Findings) == 0 || m.Ways != "" {
				rows = append(rows, []string{of, map[bool]string{true: "passed", false: "failed"}[m.Passed], "-", message})
			}
			for _, one := range m.Findings {
				rows = append(rows, []string{of, map[bool]string{true: "warning", false: "error"}[one.Warning], one.Code, one.What + ": " + one.Cause + "; " + one.Remedy})
			}
		}
		p.table([]string{"MACHINE", "RESULT", "CODE", "FINDING"}, rows)
	})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(out, func(p prechecked) bool { return !p.Passed }); i >= 0 {
		what := "Machine " + out[i].Machine + " cannot join"
		if out[i].Machine == "" {
			what = "The machines cannot work together"
		}
		return &shownError{finding.New("OCA-7614", what, out[i].Message, "correct what the findings name")}
	}
	return nil
}

// newMachineProbe returns the command that tests connections; it runs on each of the machines.
func newMachineProbe(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Test the network to other machines", Hidden: true,
		Long:    "Listens, sends to other machines and reports what arrives, as requested in lines of JSON on standard input. It ends when the input ends.",
		Example: "  ocadm machine probe <dialogue\n  echo '{\"run\":\"1\",\"name\":\"a\",\"tcp\":[10250]}' | ocadm machine probe",
		RunE:    func(c *cobra.Command, _ []string) error { return probe.Run(c.Context(), a.In, a.Out) },
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/operatorctl/policy"
)

func newOperatorPoliciesCommand() *cobra.Command {
	output := ui.NewFormat("table", "json", "yaml")
	c := &cobra.Command{
		Use:   "policies",
		Short: "Print the standard policies and roles",
		Long: "Prints the policies and roles that the operator creates in every new cloud. Use it to choose a role for a user, or to see what a\n" +
			"policy allows: json and yaml show its rules. Policies that were edited in a cloud differ from what is printed here.",
		Example: "  ocadm operator policies\n  ocadm operator policies -o json | jq '.policies[] | select(.name == \"project-viewer\").policy'",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			table, err := policy.Standard()
			if err != nil {
				return err
			}
			return ui.Print(c.OutOrStdout(), output.String(), policyRows(table), func(w io.Writer) error { return printPolicies(w, table) })
		},
	}
	c.Flags().VarP(output, "output", "o", "output format")
	return c
}

// policyTable is the table as scripts read it.
type policyTable struct {
	Policies []policyRow `json:"policies"`
	Roles    []roleRow   `json:"roles"`
}

type policyRow struct {
	Name   string         `json:"name"`
	Scope  string         `json:"scope"`
	Policy map[string]any `json:"policy"`
}

type roleRow struct {
	Name     string   `json:"name"`
	Policies []string `json:"policies"`
	// Project is empty where the role has its policies in every project.
	Project string `json:"project"`
}

func policyRows(t policy.Table) policyTable {
	out := policyTable{Policies: make([]policyRow, len(t.Policies)), Roles: make([]roleRow, len(t.Roles))}
	for i, p := range t.Policies {
		out.Policies[i] = policyRow{Name: p.Name, Scope: p.Scope, Policy: p.Rules}
	}
	for i, r := range t.Roles {
		out.Roles[i] = roleRow{Name: r.Name, Policies: r.Policies, Project: r.Project}
	}
	return out
}

func printPolicies(w io.Writer, t policy.Table) error {
	roles := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(roles, "ROLE\tPOLICIES\tPROJECT\tABOUT")
	for _, r := range t.Roles {
		fmt.Fprintf(roles, "%s\t%s\t%s\t%s\n", r.Name, strings.Join(r.Policies, ","), cmp.Or(r.Project, "any"), r.About)
	}
	if err := roles.Flush(); err != nil {
		return err
	}
	policies := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(policies, "\nPOLICY\tSCOPE\tABOUT")
	for _, p := range t.Policies {
		fmt.Fprintf(policies, "%s\t%s\t%s\n", p.Name, p.Scope, p.About)
	}
	return policies.Flush()
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/operatorctl/policy"
)

func newOperatorPolicies(a *app) *cobra.Command {
	var output *ui.Choice
	c := &cobra.Command{
		Use:   "policies",
		Short: "Print the standard policies and roles",
		Long: "Prints the policies and roles that the operator creates in every new cloud. Use it to choose a role for a user, or to see what a\n" +
			"policy allows: json and yaml show its rules. Policies that were edited in a cloud differ from what is printed here.",
		Example: "  ocadm operator policies\n  ocadm operator policies -o json | jq '.policies[] | select(.name == \"project-viewer\").policy'",
		RunE: func(c *cobra.Command, _ []string) error {
			table, err := policy.Standard()
			if err != nil {
				return err
			}
			return a.print(output, policyRows(table), func(p *page) { printPolicies(p, table) })
		},
	}
	output = addOutput(c, "table")
	return c
}

// policyTable is the table in machine-readable form.
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
	// Project is empty if the role has its policies in every project.
	Project string `json:"project"`
}

func policyRows(t policy.Table) policyTable {
	return policyTable{
		Policies: lists.Map(t.Policies, func(p policy.Policy) policyRow { return policyRow{Name: p.Name, Scope: p.Scope, Policy: p.Rules} }),
		Roles:    lists.Map(t.Roles, func(r policy.Role) roleRow { return roleRow{Name: r.Name, Policies: r.Policies, Project: r.Project} }),
	}
}

func printPolicies(p *page, t policy.Table) {
	table(p, []string{"ROLE", "POLICIES", "PROJECT", "ABOUT"}, t.Roles, func(r policy.Role) []string {
		return []string{r.Name, strings.Join(r.Policies, ","), cmp.Or(r.Project, "any"), r.About}
	})
	p.line("")
	table(p, []string{"POLICY", "SCOPE", "ABOUT"}, t.Policies, func(one policy.Policy) []string { return []string{one.Name, one.Scope, one.About} })
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

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
	out := policyTable{Policies: make([]policyRow, len(t.Policies)), Roles: make([]roleRow, len(t.Roles))}
	for i, p := range t.Policies {
		out.Policies[i] = policyRow{Name: p.Name, Scope: p.Scope, Policy: p.Rules}
	}
	for i, r := range t.Roles {
		out.Roles[i] = roleRow{Name: r.Name, Policies: r.Policies, Project: r.Project}
	}
	return out
}

func printPolicies(p *page, t policy.Table) {
	var roles, policies [][]string
	for _, r := range t.Roles {
		roles = append(roles, []string{r.Name, strings.Join(r.Policies, ","), cmp.Or(r.Project, "any"), r.About})
	}
	for _, one := range t.Policies {
		policies = append(policies, []string{one.Name, one.Scope, one.About})
	}
	p.table([]string{"ROLE", "POLICIES", "PROJECT", "ABOUT"}, roles)
	p.line("")
	p.table([]string{"POLICY", "SCOPE", "ABOUT"}, policies)
}

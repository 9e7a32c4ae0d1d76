// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
)

func newExplain(a *app) *cobra.Command {
	var output *ui.Choice
	c := &cobra.Command{
		Use: "explain [CODE]", Short: "Explain the code of a finding",
		Long:    "Explains what a code such as OCA-6002 means and what to do about it. It works offline. Without a code, it lists all codes.",
		Example: "  ocadm explain OCA-6002\n  ocadm explain",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all := finding.Catalogue()
			if len(args) == 0 {
				return a.print(output, all, func(p *page) {
					table(p, []string{"CODE", "MEANING"}, all, func(e finding.Explanation) []string { return []string{e.Code, e.Title} })
				})
			}
			e, err := explanation(all, args[0])
			if err != nil {
				return err
			}
			return a.print(output, e, func(p *page) {
				text := strings.ReplaceAll("  "+strings.TrimSpace(e.Text), "\n", "\n  ")
				p.line("%s: %s\n\n%s\n\nExit status %d (%s).", e.Code, e.Title, text, finding.ExitCode(e.Code), finding.Area(e.Code))
				if known := databaseError(args[0]); known != "" {
					p.line("\n%s", known)
				}
			})
		},
	}
	output = addOutput(c, "text")
	return c
}

func explanation(all []finding.Explanation, code string) (finding.Explanation, error) {
	for _, e := range all {
		if finding.SameCode(e.Code, code) {
			return e, nil
		}
	}
	f := finding.New("OCA-0407", fmt.Sprintf("There is no code %q", code), "", "ocadm explain lists all codes")
	if known := databaseError(code); known != "" {
		f.Cause = known
	}
	return finding.Explanation{}, f
}

// databaseError names the codes for an error number of MySQL, if a user typed a bare number: it may also be that of a code.
func databaseError(typed string) string {
	if strings.Trim(typed, "0123456789") != "" {
		return ""
	}
	var codes []string
	for _, c := range why.Causes() {
		if c.Says != nil && c.Says.MatchString("Error "+typed+" ") && !c.Says.MatchString("Error 0 ") && !slices.Contains(codes, c.Code) {
			codes = append(codes, c.Code)
		}
	}
	if len(codes) == 0 {
		return ""
	}
	return fmt.Sprintf("Error %s of the database server is explained by: ocadm explain %s; docs/troubleshooting.md", typed, strings.Join(codes, "; ocadm explain "))
}

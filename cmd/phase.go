// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// bindPhases adds "phase NAME" for every phase of a plan to its command, and the table of phases to its help. Phases accept the arguments of the command.
func bindPhases(c *cobra.Command, a *app, p plan, addFlags func(*pflag.FlagSet, *runFlags)) {
	c.Long += "\n\nThe phases of " + p.name + ", in order. --skip-phases skips phases, and \"ocadm " + p.name + " phase NAME\" runs one alone:\n\n" +
		phaseTable(p.phases)
	phase := group(&cobra.Command{
		Use: "phase", Short: "Run one phase of " + p.name, Long: "Runs one phase of " + p.name + ".\n\n" + phaseTable(p.phases),
		Example: "  # run one phase again\n  ocadm " + p.name + " phase " + p.phases[0].Name + "\n\n  # show what it would do\n  ocadm " + p.name +
			" phase " + p.phases[0].Name + " --dry-run",
	})
	addPhases(phase, a, p, "", p.phases, c.Args, addFlags)
	c.AddCommand(phase)
}

func addPhases(parent *cobra.Command, a *app, p plan, path string, phases []host.Phase, args cobra.PositionalArgs,
	addFlags func(*pflag.FlagSet, *runFlags)) {
	for _, ph := range phases {
		name := strings.TrimPrefix(path+"/"+ph.Name, "/")
		var f runFlags
		c := &cobra.Command{
			Use: ph.Name, Short: ph.Short, Long: ph.Long, Example: ph.Example, Args: args,
			RunE: func(c *cobra.Command, _ []string) error {
				f.only, f.anyRelease = []string{name}, ph.AnyRelease
				return a.runPlan(c, p, f)
			},
		}
		c.Long = cmp.Or(c.Long, ph.Short+".")
		line := "  ocadm " + p.name + " phase " + strings.ReplaceAll(name, "/", " ")
		switch strings.Count(c.Example, "ocadm ") {
		case 0:
			c.Example = line + "\n" + line + " --dry-run"
		case 1:
			c.Example += "\n" + line + " --dry-run"
		}
		addFlags(c.Flags(), &f)
		if len(ph.Phases) > 0 {
			c.Args = cobra.ArbitraryArgs
			run := c.RunE
			c.RunE = func(c *cobra.Command, rest []string) error {
				if p.name != "join" && len(rest) > 0 {
					return groupRunE(c, rest)
				}
				return run(c, rest)
			}
			addPhases(c, a, p, name, ph.Phases, args, addFlags)
		}
		parent.AddCommand(c)
	}
}

// phaseTable lists the phases for help.
func phaseTable(phases []host.Phase) string {
	const column = 31
	var b strings.Builder
	for _, r := range workflow.Table(phases) {
		name := strings.Repeat("  ", r.Depth) + r.Name
		if r.Depth > 0 {
			name = strings.Repeat("  ", r.Depth) + "/" + r.Name[strings.LastIndex(r.Name, "/")+1:]
		}
		fmt.Fprintf(&b, "  %-*s %s\n", column, name, r.Short)
	}
	return strings.TrimRight(b.String(), "\n")
}

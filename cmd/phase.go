// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

// bindPhases gives a command "phase NAME" for every phase of its plan, and the table of phases in its help. args checks the arguments
// of the command, which every phase takes, too.
func bindPhases(c *cobra.Command, a *app, p plan, addFlags func(*pflag.FlagSet, *runFlags)) {
	c.Long += "\n\nThe phases of " + p.name + ", in order. Each may be left out with --skip-phases, and run alone with \"ocadm " + p.name + " phase NAME\":\n\n" +
		phaseTable(p.phases)
	phase := &cobra.Command{
		Use: "phase", Short: "Run one phase of " + p.name, Long: "Runs one phase of " + p.name + ", with what it needs to know of the machine.\n\n" + phaseTable(p.phases),
		Example: "  # once more, one phase\n  ocadm " + p.name + " phase " + p.phases[0].Name + "\n\n  # what would it do?\n  ocadm " + p.name +
			" phase " + p.phases[0].Name + " --dry-run",
		Args: cobra.ArbitraryArgs, RunE: groupRunE,
	}
	addPhases(phase, a, p, "", p.phases, c.Args, addFlags)
	c.AddCommand(phase)
}

func addPhases(parent *cobra.Command, a *app, p plan, path string, phases []host.Phase, args cobra.PositionalArgs, addFlags func(*pflag.FlagSet, *runFlags)) {
	for _, ph := range phases {
		name := strings.TrimPrefix(path+"/"+ph.Name, "/")
		var f runFlags
		c := &cobra.Command{
			Use: ph.Name, Short: ph.Short, Long: ph.Long, Example: ph.Example, Args: args,
			RunE: func(c *cobra.Command, _ []string) error {
				f.only = []string{name}
				return a.runPlan(c, p, f)
			},
		}
		if c.Long == "" {
			c.Long = ph.Short + "."
		}
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
				if p.takesNoArguments() && len(rest) > 0 {
					return groupRunE(c, rest)
				}
				return run(c, rest)
			}
			addPhases(c, a, p, name, ph.Phases, args, addFlags)
		}
		parent.AddCommand(c)
	}
}

func (p plan) takesNoArguments() bool { return p.name != "join" }

// phaseTable lists the phases as help shows them.
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

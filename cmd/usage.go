// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// showUsage writes the help below the description of a command. Rarely used settings come last.
func showUsage(c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", c.CommandPath())
	}
	if c.Runnable() && !isGroup(c) {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	commandList(&b, c)
	common, advanced := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[annotationAdvanced] != nil {
			advanced.AddFlag(f)
		} else {
			common.AddFlag(f)
		}
	})
	for _, set := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"Flags", common}, {"More settings", advanced}, {"Global flags", c.InheritedFlags()}} {
		if text := strings.TrimRight(set.flags.FlagUsages(), " \n"); text != "" {
			fmt.Fprintf(&b, "\n%s:\n%s\n", set.title, text)
		}
	}
	_, err := fmt.Fprint(c.OutOrStderr(), b.String())
	return err
}

// isGroup reports whether a command only groups others: it has no flag but --help.
func isGroup(c *cobra.Command) bool {
	own := false
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { own = own || !f.Hidden && f.Name != "help" })
	return c.HasSubCommands() && !own
}

func commandList(b *strings.Builder, c *cobra.Command) {
	list := func(title string, in func(*cobra.Command) bool) {
		var rows strings.Builder
		for _, sub := range c.Commands() {
			if (sub.IsAvailableCommand() || sub.Name() == "help") && in(sub) {
				fmt.Fprintf(&rows, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(b, "\n%s\n%s", title, rows.String())
		}
	}
	for _, g := range c.Groups() {
		list(g.Title, func(s *cobra.Command) bool { return s.GroupID == g.ID })
	}
	list("Commands:", func(s *cobra.Command) bool { return s.GroupID == "" })
}

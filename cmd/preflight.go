// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/preflight"
)

func newPreflight(a *app) *cobra.Command {
	var list bool
	var output *ui.Choice
	c := &cobra.Command{
		Use: "preflight", Short: "Check this machine without changing it",
		Long: "Runs the checks with which init and join start, and changes nothing. It fails if init or join would fail. It reads the privileges of\n" +
			"the database account from its grants; init also tests them in a temporary database.",
		Example: `  ocadm preflight init --mysql-host 10.0.0.5 --mysql-password-file /root/mysql
  ocadm preflight join 10.0.0.1 --token ... --discovery-token-ca-cert-hash ... -o json
  ocadm preflight --list`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if !list {
				return groupRunE(c, args)
			}
			return a.printChecks(output)
		},
	}
	c.Flags().BoolVar(&list, "list", false, "list the checks")
	output = addOutput(c, "text")
	c.Flags().Lookup("output").Usage += " of the list"
	c.AddCommand(newPreflightOf(a, preflight.Init, config.ForInit, "init"), newPreflightOf(a, preflight.Join, config.ForJoin, "join [HOST[:PORT]]"))
	return c
}

type check struct {
	Name  string   `json:"name"`
	Short string   `json:"short"`
	Codes []string `json:"codes"`
}

func (a *app) printChecks(output *ui.Choice) error {
	list := lists.Map(preflight.Checks(), func(c preflight.Check) check { return check{Name: c.Name, Short: c.Short, Codes: c.Codes} })
	return a.print(output, list, func(p *page) {
		table(p, []string{"CHECK", "CODES", "MEANING"}, list, func(c check) []string { return []string{c.Name, strings.Join(c.Codes, ","), c.Short} })
	})
}

// checked is the output of "preflight -o json".
type checked struct {
	Passed   bool         `json:"passed"`
	Findings finding.List `json:"findings"`
	// Seconds holds the duration of each check. They ran concurrently.
	Seconds map[string]float64 `json:"seconds"`
}

func newPreflightOf(a *app, kind preflight.Kind, command config.For, use string) *cobra.Command {
	var file, rootfs string
	var ignore []string
	var output *ui.Choice
	var args cobra.PositionalArgs
	if kind == preflight.Join {
		args = cobra.MaximumNArgs(1)
	}
	c := &cobra.Command{
		Use: use, Short: fmt.Sprintf("Run the checks of %s", kind), Long: fmt.Sprintf("Checks this machine with the settings of %s.", kind),
		Example: fmt.Sprintf("  ocadm preflight %s\n  ocadm preflight %s -o json | jq '.findings[].code'", kind, kind),
		Args:    args,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := a.loadSettings(c, command, file)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				cfg.Join.Endpoint = args[0]
			}
			cfg.Run.DryRun = true
			h, err := a.machine(c.Context(), cfg, command, rootfs)
			if err != nil {
				return err
			}
			defer closeBundle(h) //nolint:errcheck // it was only read
			images := joinImages // without them, no check would look for the images
			if command == config.ForInit {
				images = cloudImages
			}
			if err := images(c.Context(), a, h); err != nil {
				return err
			}
			found, took := preflight.Timed(c.Context(), h, kind, preflight.DefaultLimits())
			if found = found.Ignore(ignore); found == nil {
				found = finding.List{}
			}
			return a.printFindings(output, checked{Passed: found.Err() == nil, Findings: found, Seconds: took}, found, "All checks passed.")
		},
	}
	addSettings(c.Flags(), command)
	addConfig(c.Flags(), &file)
	c.Flags().StringSliceVar(&ignore, "ignore-preflight-errors", nil, "checks whose errors become warnings; \"all\" means every check")
	c.Flags().StringVar(&rootfs, "rootfs", "", "directory to use as the root of the machine")
	hide(c.Flags(), "rootfs")
	output = addOutput(c, "text")
	return c
}

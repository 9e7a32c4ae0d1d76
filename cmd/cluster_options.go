// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/render"
)

func newClusterOptions(a *app) *cobra.Command {
	var f cloudFlags
	var set bool
	c := &cobra.Command{
		Use:   "options COMPONENT",
		Short: "List the options that a component knows, and their values",
		Long: "Lists the options that a component knows, with their types, and the values in its ConfigMap: whose they are, and what is wrong\n" +
			"with them. An option without a value has the service's own default. Values that may be secrets are not shown. They are changed with\n" +
			"kubectl edit configmap CLOUD-COMPONENT.",
		Example: "  ocadm cluster options region\n  ocadm cluster options region --set\n" +
			"  ocadm cluster options keystone -o json | jq -r '.[] | select(.owner == \"you\") | .name'",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := configurable(args[0]); err != nil {
				return err
			}
			return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
				list, err := cluster.ServiceOptions(ctx, k, f.key(), args[0])
				if err != nil {
					return err
				}
				if set {
					list = slices.DeleteFunc(list, func(o cluster.ServiceOption) bool { return o.Value == nil })
				}
				return ui.Print(a.Out, f.output.String(), list, func(w io.Writer) error { return optionsTable(w, list) })
			})
		},
	}
	f.add(c.Flags(), "table", "json", "yaml")
	c.Flags().BoolVar(&set, "set", false, "only those that have a value")
	return c
}

// configurable refuses what is no component with options.
func configurable(name string) error {
	var known []string
	for _, c := range catalog.All() {
		if render.Configurable(c) {
			known = append(known, c.Name)
		}
	}
	if slices.Contains(known, name) {
		return nil
	}
	remedy := "use one of " + strings.Join(known, ", ")
	if near, ok := nearest.To(name, known); ok {
		remedy = "ocadm cluster options " + near
	}
	return finding.Finding{Code: "OCA-0401", Severity: finding.Error, What: "The command line is not understood",
		Cause: fmt.Sprintf("%q is no component whose options can be set", name), Remedy: remedy}
}

func optionsTable(w io.Writer, list []cluster.ServiceOption) error {
	var rows [][]string
	for _, o := range list {
		kind, value := o.Type, ""
		if len(o.Choices) > 0 {
			kind = strings.Join(o.Choices, "|")
		}
		if o.Value != nil {
			value = strings.TrimSpace(*o.Value)
		}
		rows = append(rows, []string{o.Name, orDash(kind), orDash(value), orDash(o.Owner), o.Problem})
	}
	return ui.Table(w, []string{"OPTION", "TYPE", "VALUE", "WHOSE", "PROBLEM"}, rows)
}

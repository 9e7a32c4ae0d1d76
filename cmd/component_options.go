// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
)

// newComponentOptions groups the commands that work on the options of a component's service.
func newComponentOptions(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "options",
		Short: "List, set and unset the options of a component",
		Long: "The options of a component are its ConfigMap, CLOUD-COMPONENT: one key for each option, with the value in YAML. The operator checks\n" +
			"every change, stores it in the identity service if the service keeps its options there, and restarts the pods.",
		Example: "  ocadm component options list region\n  ocadm component options set region default_bandwidth=2000\n" +
			"  ocadm component options unset region default_bandwidth",
	}, newOptionsList(a, "list COMPONENT"), newOptionsSet(a), newOptionsUnset(a))
}

func newOptionsList(a *app, use string) *cobra.Command {
	var f cloudFlags
	var set bool
	c := &cobra.Command{
		Use:   use,
		Short: "List the options of a component with their effective values",
		Long: "Lists the options that the service of a component accepts, with the type and the effective value of each. SOURCE shows where the value\n" +
			"comes from: you (the ConfigMap), the operator, stored (set in the console or with climc, or by the service itself), or default (built\n" +
			"into the service). Values that may be secrets are hidden.",
		Example: "  ocadm component options list region\n  ocadm component options list region --only-set\n" +
			"  ocadm component options list keystone -o json | jq -r '.[] | select(.source == \"you\") | .name'",
		Args: cobra.ExactArgs(1), ValidArgsFunction: configurableNames,
		RunE: func(c *cobra.Command, args []string) error {
			service, err := optionsOf(args[0])
			if err != nil {
				return err
			}
			return showCloud(a, &f, c, func(ctx context.Context, k client.WithWatch) ([]cluster.ServiceOption, error) {
				stored, err := cluster.StoredOptions(ctx, k, f.key(), service)
				if err != nil {
					a.warn("values that the identity service stores are missing: %v", err)
				}
				list, err := cluster.ServiceOptions(ctx, k, f.key(), args[0], stored)
				if list != nil && err != nil {
					a.warn("the options could not be checked: %v", err)
					err = nil
				}
				if set {
					list = slices.DeleteFunc(list, func(o cluster.ServiceOption) bool {
						return o.Source != cluster.SourceUser && o.Source != cluster.SourceOperator
					})
				}
				return list, err
			}, optionsTable)
		},
	}
	f.add(a, c, nil, "table", "json", "yaml")
	c.Flags().BoolVar(&set, "only-set", false, "list only options that you or the operator set")
	c.Flags().BoolVar(&set, "set", false, "the former name of --only-set")
	hide(c.Flags(), "set")
	return c
}

func newOptionsSet(a *app) *cobra.Command {
	return changesOptions(a, &cobra.Command{
		Use:   "set COMPONENT KEY=VALUE...",
		Short: "Set options of a component",
		Long: "Sets options in the ConfigMap of a component. VALUE is YAML: 2000, true, '[\"a\", \"b\"]'. All options are checked before any is set.\n" +
			"The operator then restarts the pods of the component once.",
		Example: "  ocadm component options set region default_bandwidth=2000 --wait\n" +
			"  ocadm component options set glance 'target_image_formats=[\"qcow2\", \"vmdk\"]'",
	}, func(c *cobra.Command, arg string) (string, *string, error) {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return "", nil, misused(fmt.Sprintf("%q is not KEY=VALUE", arg), c.UseLine())
		}
		return key, &value, nil
	})
}

func newOptionsUnset(a *app) *cobra.Command {
	return changesOptions(a, &cobra.Command{
		Use:   "unset COMPONENT KEY...",
		Short: "Remove options that you set from a component",
		Long: "Removes options that you set from the ConfigMap of a component. The operator removes their stored values from the identity service and\n" +
			"restarts the pods, so that each option returns to its default: the operator's, or otherwise the one built into the service.\n" +
			"Removing a key with kubectl edit configmap has the same effect.",
		Example: "  ocadm component options unset region default_bandwidth\n  ocadm component options unset glance target_image_formats",
	}, func(_ *cobra.Command, arg string) (string, *string, error) { return arg, nil, nil })
}

// changesOptions completes a command that changes the options that parse reads from its arguments; a nil value removes one.
func changesOptions(a *app, c *cobra.Command, parse func(c *cobra.Command, arg string) (key string, value *string, err error)) *cobra.Command {
	var f cloudFlags
	c.Args = cobra.MinimumNArgs(2)
	c = changesComponent(a, &f, c, func(c *cobra.Command, ref cluster.ComponentRef, args []string) error {
		if _, err := optionsOf(ref.Name); err != nil {
			return err
		}
		values := map[string]*string{}
		for _, arg := range args {
			key, value, err := parse(c, arg)
			if err != nil {
				return err
			}
			if _, twice := values[key]; twice {
				return misused(fmt.Sprintf("option %s is given twice", key), "give each option once")
			}
			values[key] = value
		}
		return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
			return a.changeOptions(ctx, k, &f, ref, values)
		})
	})
	c.ValidArgsFunction = configurableNames
	return c
}

func (a *app) changeOptions(ctx context.Context, k client.WithWatch, f *cloudFlags, ref cluster.ComponentRef, values map[string]*string) error {
	if !f.wait {
		lines, err := cluster.ChangeServiceOptions(ctx, k, ref.Cloud, ref.Name, values)
		if err != nil {
			return err
		}
		return a.printOutcome(f, f.changed("configured", lines))
	}
	lines, seen, err := ref.ChangeOptions(ctx, k, values)
	if err == nil {
		err = ref.Unpaused(ctx, k)
	}
	if err != nil {
		return err
	}
	return a.waitSeen(ctx, k, f, lines, seen)
}

// formerly hides a command that was renamed, and prints its new name.
func formerly(a *app, c *cobra.Command, now string) *cobra.Command {
	c.Hidden = true
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		a.warn("%s is now %s", c.CommandPath(), now)
		return run(c, args)
	}
	return c
}

// optionsOf returns the identity service's record for the options of a component, "" if there is none. It refuses names that are not components with
// options.
func optionsOf(name string) (service string, err error) {
	known, _ := configurableNames(nil, nil, "")
	if !slices.Contains(known, name) {
		return "", misspelt(fmt.Sprintf("%q is not a component with options", name), name, known, "use one of "+strings.Join(known, ", "))
	}
	c, _ := catalog.Get(name)
	return c.OptionsRecord(), nil
}

// configurableNames completes the name of a component with options.
func configurableNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return catalog.Names(func(c component.Component) bool { return len(args) == 0 && render.Configurable(c) }), cobra.ShellCompDirectiveNoFileComp
}

func optionsTable(p *page, list []cluster.ServiceOption) {
	table(p, []string{"OPTION", "TYPE", "VALUE", "SOURCE", "PROBLEM"}, list, func(o cluster.ServiceOption) []string {
		kind := cmp.Or(strings.Join(o.Choices, "|"), o.Type, "-")
		value := "-"
		if o.Value != nil {
			value = cmp.Or(strings.TrimSpace(*o.Value), `""`)
		}
		return []string{o.Name, kind, value, o.Source, o.Problem}
	})
}

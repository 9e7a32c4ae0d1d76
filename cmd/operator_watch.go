// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	operatorphase "yunion.io/x/ocadm/phases/operator"
)

// watchedNamespace is a namespace whose clouds the operator looks after.
type watchedNamespace struct {
	Namespace string   `json:"namespace"`
	Changes   []string `json:"changes,omitempty"`
}

func newOperatorWatchCommand() *cobra.Command {
	var kubeconfig string
	output := ui.NewFormat("table", "json", "yaml")
	c := &cobra.Command{
		Use:   "watch [NAMESPACE...]",
		Short: "Let the operator look after clouds in more namespaces",
		Long: "The operator looks after clouds in its own namespace and in those it was told of, and has no rights anywhere else. This makes each\n" +
			"namespace where it does not exist, gives the operator its rights there, makes the accounts of the cloud's services, and tells the\n" +
			"operator, which starts again. Without a name it prints where the operator looks.",
		Example: "  ocadm operator watch\n  ocadm operator watch tenant-a tenant-b",
		Args:    arguments(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, names []string) error {
			return withKube(c.Context(), kubeconfig, requestTimeout, func(ctx context.Context, k client.WithWatch) error {
				list, err := watchNamespaces(ctx, k, names)
				if err != nil {
					return err
				}
				return ui.Print(c.OutOrStdout(), output.String(), list, func(w io.Writer) error { return printNamespaces(w, list) })
			})
		},
	}
	addKubeconfig(c.Flags(), &kubeconfig)
	c.Flags().VarP(output, "output", "o", "how the result is printed")
	return c
}

func watchNamespaces(ctx context.Context, k client.WithWatch, names []string) ([]watchedNamespace, error) {
	watched, err := operatorphase.Watched(ctx, k)
	if err != nil {
		return nil, err
	}
	if watched == nil {
		return nil, finding.Errorf("OCA-7008", "there is no operator that could be told", "install it: ocadm init phase operator", "Deployment %s/%s is not there",
			operatorphase.Namespace, operatorphase.Name)
	}
	list := []watchedNamespace{}
	for _, n := range names {
		set, err := operatorphase.Serve(ctx, k, n)
		if err != nil {
			return nil, err
		}
		w := watchedNamespace{Namespace: n}
		for _, change := range set.Changed() {
			w.Changes = append(w.Changes, change.String())
		}
		list = append(list, w)
	}
	if len(names) == 0 {
		for _, n := range watched {
			list = append(list, watchedNamespace{Namespace: n})
		}
	}
	return list, nil
}

func printNamespaces(w io.Writer, list []watchedNamespace) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAMESPACE\tCHANGES")
	for _, n := range list {
		fmt.Fprintf(t, "%s\t%d\n", n.Namespace, len(n.Changes))
	}
	return t.Flush()
}

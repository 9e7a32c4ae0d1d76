// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	operatorphase "yunion.io/x/ocadm/phases/operator"
)

// newOperatorNamespace groups the commands for the namespaces in which the operator manages clouds.
func newOperatorNamespace(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "namespace",
		Short: "List, add and remove the namespaces in which the operator manages clouds",
		Long: "The operator manages clouds in its own namespace and in those added here, and has permissions nowhere else. Adding or removing a namespace\n" +
			"changes the permissions of the operator and restarts it; clouds keep running.",
		Example: "  ocadm operator namespace list\n  ocadm operator namespace add tenant-b",
	}, newNamespaceList(a), newNamespaceAdd(a, "add NAMESPACE..."), newNamespaceRemove(a))
}

// newOperatorWatch is the former name of "operator namespace add", and without arguments of "list".
func newOperatorWatch(a *app) *cobra.Command {
	c := newNamespaceAdd(a, "watch [NAMESPACE...]")
	c.Args = cobra.ArbitraryArgs
	return formerly(a, c, "ocadm operator namespace add, or list")
}

func newNamespaceList(a *app) *cobra.Command {
	return newNamespaceCommand(a, &cobra.Command{
		Use:     "list",
		Short:   "List the namespaces in which the operator manages clouds",
		Long:    "Lists the namespaces in which the operator manages clouds. Its own namespace is always the first.",
		Example: "  ocadm operator namespace list\n  ocadm operator namespace list -o json",
	}, nil)
}

func newNamespaceAdd(a *app, use string) *cobra.Command {
	return newNamespaceCommand(a, &cobra.Command{
		Use:   use,
		Short: "Add namespaces in which the operator manages clouds",
		Long: "Creates each namespace that does not exist, gives the operator permissions there, creates the service accounts of the components, and\n" +
			"restarts the operator.",
		Example: "  ocadm operator namespace add tenant-b\n  ocadm operator namespace add tenant-b tenant-c",
		Args:    cobra.MinimumNArgs(1),
	}, operatorphase.Serve)
}

func newNamespaceRemove(a *app) *cobra.Command {
	return newNamespaceCommand(a, &cobra.Command{
		Use:   "remove NAMESPACE...",
		Short: "Stop managing clouds in namespaces",
		Long: "Removes the permissions of the operator and the service accounts of the components from each namespace, and restarts the operator.\n" +
			"The namespace itself stays. A namespace that still holds a cloud is refused: delete the cloud first.",
		Example: "  ocadm operator namespace remove tenant-b\n  ocadm operator namespace remove tenant-b tenant-c",
		Args:    cobra.MinimumNArgs(1),
	}, operatorphase.Leave)
}

// managedNamespace is a namespace in which the operator manages clouds, and what a command changed there.
type managedNamespace struct {
	Namespace string   `json:"namespace"`
	Changes   []string `json:"changes,omitempty"`
}

// newNamespaceCommand completes a command that changes the namespaces of its arguments. Without arguments it lists the namespaces.
func newNamespaceCommand(a *app, c *cobra.Command, change func(context.Context, client.WithWatch, string) (kube.ChangeSet, error)) *cobra.Command {
	var kubeconfig string
	shows(a, c, "table", func(c *cobra.Command, names []string) (list []managedNamespace, err error) {
		err = withKube(c.Context(), kubeconfig, func(ctx context.Context, k client.WithWatch) error {
			if list, err = namespaces(ctx, k); len(names) > 0 && err == nil {
				list, err = changeNamespaces(ctx, k, names, change)
			}
			return err
		})
		return list, err
	}, namespacesTable)
	addKubeconfig(c.Flags(), &kubeconfig)
	a.readsSettings(c, map[string]string{"kubeconfig": "cluster.kubeconfig"})
	return c
}

func namespaces(ctx context.Context, k client.Client) ([]managedNamespace, error) {
	watched, err := operatorphase.Watched(ctx, k)
	if err != nil {
		return nil, err
	}
	if watched == nil {
		return nil, finding.Errorf("OCA-7008", "Operator not found", finding.InstallOperator, "there is no Deployment %s/%s",
			operatorphase.Namespace, operatorphase.Name)
	}
	list := make([]managedNamespace, len(watched))
	for i, name := range watched {
		list[i].Namespace = name
	}
	return list, nil
}

func changeNamespaces(ctx context.Context, k client.WithWatch, names []string,
	change func(context.Context, client.WithWatch, string) (kube.ChangeSet, error),
) ([]managedNamespace, error) {
	var list []managedNamespace
	for _, name := range names {
		set, err := change(ctx, k, name)
		if err != nil {
			return nil, err
		}
		list = append(list, managedNamespace{Namespace: name, Changes: lists.Map(set.Changed(), kube.Change.String)})
	}
	return list, nil
}

func namespacesTable(p *page, list []managedNamespace) {
	var rows [][]string
	for _, n := range list {
		for _, change := range n.Changes {
			rows = append(rows, []string{n.Namespace, change})
		}
		if len(n.Changes) == 0 {
			rows = append(rows, []string{n.Namespace, "-"})
		}
	}
	p.table([]string{"NAMESPACE", "CHANGES"}, rows)
}

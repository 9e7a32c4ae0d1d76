// SPDX-License-Identifier: Apache-2.0

package cmd

import "github.com/spf13/cobra"

// newOperatorCommand groups what concerns the operator: running it, and looking at what it would do.
func newOperatorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "operator",
		Short: "Run the operator, or print what it would do",
		Long: "The operator watches OnecloudCluster resources and brings each cloud to what its spec says.\n" +
			"It runs in the cluster as \"ocadm operator run\"; render, components, policies and crd need no cluster.",
		Example: "  ocadm operator render -f cloud.yaml\n  ocadm operator components",
		Args:    cobra.ArbitraryArgs,
		RunE:    groupRunE,
	}
	c.AddCommand(newOperatorRunCommand(), newOperatorWatchCommand(), newOperatorRenderCommand(), newOperatorComponentsCommand(),
		newOperatorPoliciesCommand(), newOperatorCRDCommand())
	return c
}

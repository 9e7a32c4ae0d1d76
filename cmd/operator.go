// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/cluster/restapi"
)

// newOperatorCommand groups the commands that run the operator, configure it, or preview its work.
func newOperatorCommand(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "operator",
		Short: "Install, run or configure the operator, or print what it would do",
		Long: "The operator watches OnecloudCluster resources and makes each cloud match its spec. It runs in the cluster as \"ocadm operator run\".\n" +
			"init installs it. On a cluster that another tool built, install does. manifests, render, components, policies, crd and openapi need no cluster.",
		Example: "  ocadm operator install --kubeconfig ~/.kube/config\n  ocadm operator render -f cloud.yaml",
	}, newOperatorInstall(a), newOperatorUninstall(a), newOperatorManifests(a), newOperatorRunCommand(a), newOperatorNamespace(a),
		newOperatorWatch(a), newOperatorWork(a), newOperatorShareAuthorities(a), newOperatorCertificates(a), newOperatorRenderCommand(), newOperatorComponents(a),
		newOperatorPolicies(a), newOperatorCRDCommand(), newOperatorOpenAPI(a))
}

func newOperatorOpenAPI(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "openapi", Short: "Print the description of the REST API", Long: "Prints the description of the REST API (ocadm operator run --api-addr) in OpenAPI 3.1, as JSON.",
		Example: "  ocadm operator openapi >openapi.json\n  ocadm operator openapi | jq -r '.paths | keys[]'",
		RunE: func(*cobra.Command, []string) error {
			text, err := restapi.Document()
			if err != nil {
				return err
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
}

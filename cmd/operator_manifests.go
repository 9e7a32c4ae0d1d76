// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	operatorphase "yunion.io/x/ocadm/phases/operator"
)

func newOperatorManifests(a *app) *cobra.Command {
	cfg := config.Default()
	var namespaces []string
	var chart, kustomization string
	output := ui.NewFormat("yaml", "json")
	c := &cobra.Command{
		Use:   "manifests",
		Short: "Print what install applies, or write a Helm chart or a kustomization",
		Long: "Prints the definition, the permissions and the Deployment of the operator, in an order in which they can be applied. It contacts nothing.\n" +
			"--chart and --kustomization write the same objects to a directory instead, for Helm and Kustomize.",
		Example: `  ocadm operator manifests --operator-image registry.example.org/you/ocadm:v1 | kubectl apply --server-side -f -
  ocadm operator manifests --chart ./ocadm && helm install ocadm ./ocadm --namespace onecloud --create-namespace
  ocadm operator manifests --kustomization ./ocadm && kubectl apply --server-side -k ./ocadm`,
		RunE: func(c *cobra.Command, _ []string) error {
			if lists.Count([]string{"chart", "kustomization", "output"}, c.Flags().Changed) > 1 {
				return misused("--chart, --kustomization and --output exclude each other", "give one of them: --chart and --kustomization write YAML")
			}
			if err := config.Validate(&cfg, config.ForInstall); err != nil {
				return err
			}
			dir, render := chart, operatorphase.Chart
			if kustomization != "" {
				dir, render = kustomization, operatorphase.Kustomization
			}
			if dir == "" {
				return a.printManifests(output.String(), cfg.OperatorImage(), namespaces)
			}
			files, err := render(cfg.OperatorImage(), namespaces...)
			if err != nil {
				return err
			}
			if err := files.Write(dir); err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Err, "wrote %s to %s\n", lists.Counted(len(files), "file"), dir)
			return err
		},
	}
	fs := c.Flags()
	for key, field := range map[string]*string{
		"cloud.operatorImage": &cfg.Cloud.OperatorImage, "cloud.operatorVersion": &cfg.Cloud.OperatorVersion,
		"cluster.imageRepository": &cfg.Cluster.ImageRepository,
	} {
		s := config.Find(key)
		fs.StringVar(field, s.Flag, *field, s.Usage)
		fs.Lookup(s.Flag).DefValue = "" // the text describes it better
	}
	fs.StringSliceVar(&namespaces, "namespaces", nil, "namespaces of clouds, in addition to the operator's own, "+operatorphase.Namespace)
	fs.StringVar(&chart, "chart", "", "write a Helm chart to this directory")
	fs.StringVar(&kustomization, "kustomization", "", "write a kustomization to this directory")
	fs.VarP(output, "output", "o", "YAML documents, or one v1 List in JSON")
	a.readsSettings(c, map[string]string{
		"operator-image": "cloud.operatorImage", "operator-version": "cloud.operatorVersion", "image-repository": "cluster.imageRepository",
	})
	return c
}

func (a *app) printManifests(format, image string, namespaces []string) error {
	objs, err := operatorphase.Objects(image, namespaces...)
	if err != nil {
		return err
	}
	print := operatorphase.YAML
	if format == "json" {
		print = operatorphase.JSON
	}
	out, err := print(objs)
	if err != nil {
		return err
	}
	_, err = a.Out.Write(out)
	return err
}

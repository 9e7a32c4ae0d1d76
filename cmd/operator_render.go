// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/templates"
)

func newOperatorRenderCommand() *cobra.Command {
	var file, output string
	c := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Print every object a cloud would consist of",
		Long: "Reads an OnecloudCluster from a file and prints every object the operator would apply for it. It asks nobody:\n" +
			"secrets are placeholders such as <keystone.bootstrap-password>, and the output is the same every time.",
		Example: "  ocadm operator render -f cloud.yaml\n  kubectl get oc default -n onecloud -o yaml | ocadm operator render -f - -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "yaml" && output != "json" {
				return badOutput(output, "yaml, json")
			}
			text, err := readInput(file, c.InOrStdin())
			if err != nil {
				return err
			}
			objs, err := renderCloud(text)
			if err != nil {
				return err
			}
			print := render.YAML
			if output == "json" {
				print = render.JSON
			}
			out, err := print(objs)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(out)
			return err
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "file that holds the OnecloudCluster, - for standard input")
	c.Flags().StringVarP(&output, "output", "o", "yaml", "yaml: documents, json: one v1 List")
	_ = c.MarkFlagRequired("filename") // fails only for a flag that does not exist
	return c
}

func readInput(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		b, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return b, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, finding.Errorf("OCA-0310", "the cloud's file cannot be read", "name a file that holds an OnecloudCluster, or - for standard input", "%w", err)
	}
	return b, nil
}

// renderCloud renders the enabled components of the cloud that a file describes, in the order of the catalogue.
func renderCloud(text []byte) ([]client.Object, error) {
	cr, err := parseCloud(text)
	if err != nil {
		return nil, err
	}
	table, err := images.Load()
	if err != nil {
		return nil, err
	}
	cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
	if err != nil {
		return nil, finding.Errorf("OCA-0312", "this cloud cannot be built", "correct the named fields", "%w", err)
	}
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	var objs []client.Object
	var errs []error
	for _, c := range catalog.All() {
		r := cluster.Components[c.Name]
		if !r.Enabled {
			continue
		}
		o, err := render.Component(r, in)
		errs = append(errs, err)
		objs = append(objs, render.List(o)...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, finding.Errorf("OCA-0312", "this cloud cannot be built", "correct the named fields", "%w", err)
	}
	return objs, nil
}

func parseCloud(text []byte) (*v1alpha1.OnecloudCluster, error) {
	const what, remedy = "the file holds no usable OnecloudCluster", "write one with apiVersion: " + v1alpha1.Group + "/" + v1alpha1.Version + " and kind: " + v1alpha1.Kind
	cr := &v1alpha1.OnecloudCluster{}
	if err := yaml.Unmarshal(text, cr); err != nil {
		return nil, finding.Errorf("OCA-0311", what, remedy, "%w", err)
	}
	if cr.Kind != v1alpha1.Kind || cr.APIVersion != v1alpha1.GroupVersion.String() {
		return nil, finding.Errorf("OCA-0311", what, remedy, "it is a %q of %q", cr.Kind, cr.APIVersion)
	}
	if cr.Name == "" {
		return nil, finding.Errorf("OCA-0311", what, remedy, "metadata.name is missing")
	}
	return cr, nil
}

func badOutput(got, want string) error {
	return finding.Errorf("OCA-0410", "--output "+got+" is unknown", "use one of "+want, "it is none of %s", want)
}

func newOperatorComponentsCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "components",
		Short:   "Print the table of components",
		Long:    "Prints what the operator can deploy: each component with its kind, image, ports, database, account, endpoints and order.",
		Example: "  ocadm operator components\n  ocadm operator components -o json | jq -r '.[].name'",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows := componentRows()
			switch output {
			case "table":
				return printComponents(c.OutOrStdout(), rows)
			case "json":
				b, err := json.MarshalIndent(rows, "", "  ")
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), string(b))
				return err
			case "yaml":
				b, err := yaml.Marshal(rows)
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(b)
				return err
			}
			return badOutput(output, "table, json, yaml")
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}

// componentRow is one component as scripts read it.
type componentRow struct {
	Name      string   `json:"name"`
	Summary   string   `json:"summary"`
	SpecKey   string   `json:"specKey"`
	Kinds     []string `json:"kinds"`
	Image     string   `json:"image,omitempty"`
	Ports     []string `json:"ports,omitempty"`
	Database  string   `json:"database,omitempty"`
	Account   string   `json:"account,omitempty"`
	Endpoints []string `json:"endpoints,omitempty"`
	After     []string `json:"after,omitempty"`
	Editions  []string `json:"editions,omitempty"`
	Products  []string `json:"products,omitempty"`
	Optional  bool     `json:"offByDefault,omitempty"`
}

func componentRows() []componentRow {
	all := catalog.All()
	rows := make([]componentRow, len(all))
	for i, c := range all {
		rows[i] = row(c)
	}
	return rows
}

func row(c component.Component) componentRow {
	r := componentRow{Name: c.Name, Summary: c.Summary, SpecKey: c.SpecKey, Kinds: c.Kinds(), After: c.After, Optional: c.OffByDefault}
	if c.SpecKey == "" {
		r.SpecKey = "components." + c.Name
	}
	if c.Workload.Kind != component.NoWorkload {
		r.Image = c.Image.Reference
		if r.Image == "" {
			r.Image = strings.Join([]string{nonEmpty(c.Image.Name, c.Name), nonEmpty(c.Image.Tag, "{version}")}, ":")
		}
	}
	if c.Service != nil {
		for _, s := range append([]component.Service{*c.Service}, c.Service.More...) {
			for _, p := range s.Ports {
				r.Ports = append(r.Ports, fmt.Sprintf("%s/%d", p.Name, max(p.Port, p.NodePort)))
			}
		}
	}
	if c.Database != nil {
		r.Database = c.Database.Name
	}
	if c.Account != nil {
		r.Account = c.Account.User
	}
	for _, e := range c.Endpoints {
		r.Endpoints = append(r.Endpoints, e.Service+"/"+e.Type)
	}
	for _, e := range c.Editions {
		r.Editions = append(r.Editions, string(e))
	}
	for _, p := range c.Products {
		r.Products = append(r.Products, string(p))
	}
	return r
}

func printComponents(w io.Writer, rows []componentRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tKINDS\tIMAGE\tPORTS\tDATABASE\tACCOUNT\tENDPOINTS\tAFTER")
	for _, r := range rows {
		cells := []string{r.Name, strings.Join(r.Kinds, ","), r.Image, strings.Join(r.Ports, ","), r.Database, r.Account,
			strings.Join(r.Endpoints, ","), strings.Join(r.After, ",")}
		for i, c := range cells {
			cells[i] = nonEmpty(c, "-")
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

func nonEmpty(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func newOperatorCRDCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "crd",
		Short:   "Print the custom resource definition",
		Long:    "Prints the definition of OnecloudCluster that this operator needs.",
		Example: "  ocadm operator crd\n  ocadm operator crd | kubectl apply --server-side -f -",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := templates.ReadDir("operator/crds")
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(b)
			return err
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/templates"
)

func newOperatorRenderCommand() *cobra.Command {
	var file string
	output := ui.NewFormat("yaml", "json")
	c := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Print every object of a cloud",
		Long: "Reads an OnecloudCluster from a file and prints every object that the operator would apply for it. It contacts nothing: secrets are\n" +
			"placeholders such as <keystone.bootstrap-password>, and the output is always the same. Unknown fields are errors.",
		Example: "  ocadm operator render -f cloud.yaml\n  kubectl get oc default -n onecloud -o yaml | ocadm operator render -f - -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := readInput(file, c.InOrStdin())
			if err != nil {
				return err
			}
			objs, err := renderCloud(text)
			if err != nil {
				return err
			}
			print := render.YAML
			if output.String() == "json" {
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
	c.Flags().StringVarP(&file, "filename", "f", "", "file with an OnecloudCluster; - reads standard input")
	c.Flags().VarP(output, "output", "o", "YAML documents, or one v1 List in JSON")
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
		return nil, finding.Errorf("OCA-0310", "Cannot read the file of the cloud",
			"name a file with an OnecloudCluster, or - for standard input", "%w", err)
	}
	return b, nil
}

// renderCloud renders the enabled components of the cloud in a file, in catalogue order.
func renderCloud(text []byte) ([]client.Object, error) {
	cluster, err := resolveCloud(text)
	if err != nil {
		return nil, err
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
	return objs, invalidCloud(errors.Join(errs...))
}

// resolveCloud returns the cloud in a file, with what the operator would choose for it.
func resolveCloud(text []byte) (component.Cluster, error) {
	cr, err := parseCloud(text)
	if err != nil {
		return component.Cluster{}, err
	}
	table, err := images.Load()
	if err != nil {
		return component.Cluster{}, err
	}
	resolved, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
	return resolved, invalidCloud(err)
}

func invalidCloud(err error) error {
	if err == nil {
		return nil
	}
	return finding.Errorf("OCA-0312", "Invalid cloud", "correct the named fields", "%w", err)
}

func parseCloud(text []byte) (*v1alpha1.OnecloudCluster, error) {
	const (
		what   = "The file contains no valid OnecloudCluster"
		remedy = "write one with apiVersion: " + v1alpha1.Group + "/" + v1alpha1.Version + " and kind: " + v1alpha1.Kind
	)
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, finding.Errorf("OCA-0311", what, remedy, "%w", err)
	}
	cr := &v1alpha1.OnecloudCluster{}
	unknown, err := kjson.UnmarshalStrict(raw, cr)
	switch {
	case cr.Kind != v1alpha1.Kind || cr.APIVersion != v1alpha1.GroupVersion.String():
		return nil, finding.Errorf("OCA-0311", what, remedy, "it is a %q of %q", cr.Kind, cr.APIVersion)
	case err != nil:
		f := finding.Finding{Code: "OCA-0311", Severity: finding.Error, What: what, Cause: err.Error(), Remedy: remedy, Err: err}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			key := strings.TrimPrefix(wrong.Field, "spec.")
			f.Cause = fmt.Sprintf("%s: must be a %s, not %s", wrong.Field, wrong.Type, wrong.Value)
			if meant := resolve.Meant(key, catalog.All()); meant != "" && meant != key {
				f.Remedy = fmt.Sprintf("did you mean spec.%s?", meant)
			}
		}
		return nil, f
	case cr.Name == "":
		return nil, finding.Errorf("OCA-0311", what, remedy, "metadata.name is missing")
	}
	return cr, unknownFields(unknown)
}

func unknownFields(strict []error) error {
	f := finding.New("OCA-0314", "The OnecloudCluster has unknown fields", "", "remove them, or correct their names")
	for _, err := range strict {
		field, ok := errors.AsType[kjson.FieldError](err)
		if !ok {
			continue
		}
		path, below := strings.CutPrefix(field.FieldPath(), "spec.")
		if !below {
			continue // the status, and metadata of newer API servers
		}
		text := "spec." + path
		if meant := resolve.Meant(path, catalog.All()); meant != "" {
			text += fmt.Sprintf("; did you mean spec.%s?", meant)
		}
		f.Evidence = append(f.Evidence, text)
	}
	if len(f.Evidence) == 0 {
		return nil
	}
	return f
}

func newOperatorComponents(a *app) *cobra.Command {
	return shows(a, &cobra.Command{
		Use:     "components",
		Short:   "Print the table of components",
		Long:    "Prints the components that the operator can deploy: kinds, image, ports, database, account, endpoints and order of each.",
		Example: "  ocadm operator components\n  ocadm operator components -o json | jq -r '.[].name'",
	}, "table", func(*cobra.Command, []string) ([]componentRow, error) { return lists.Map(catalog.All(), row), nil }, printComponents)
}

// componentRow is a component in machine-readable form.
type componentRow struct {
	Name      string              `json:"name"`
	Summary   string              `json:"summary"`
	SpecKey   string              `json:"specKey"`
	Kinds     []string            `json:"kinds"`
	Image     string              `json:"image,omitempty"`
	Ports     []string            `json:"ports,omitempty"`
	Database  string              `json:"database,omitempty"`
	Account   string              `json:"account,omitempty"`
	Endpoints []string            `json:"endpoints,omitempty"`
	After     []string            `json:"after,omitempty"`
	Editions  []component.Edition `json:"editions,omitempty"`
	Products  []component.Product `json:"products,omitempty"`
	Optional  bool                `json:"offByDefault,omitempty"`
	// Single explains why only one replica runs in profile ha.
	Single string `json:"single,omitempty"`
}

func row(c component.Component) componentRow {
	r := componentRow{Name: c.Name, Summary: c.Summary, SpecKey: c.SpecKey, Kinds: c.Kinds(), After: c.After, Optional: c.OffByDefault, Single: c.Single}
	if c.SpecKey == "" {
		r.SpecKey = "components." + c.Name
	}
	if c.Workload.Kind != component.NoWorkload {
		r.Image = c.Image.Reference
		if r.Image == "" {
			r.Image = strings.Join([]string{cmp.Or(c.Image.Name, c.Name), cmp.Or(c.Image.Tag, "{version}")}, ":")
		}
	}
	for _, s := range c.Services() {
		for _, p := range s.Ports {
			r.Ports = append(r.Ports, fmt.Sprintf("%s/%d", p.Name, max(p.Port, p.NodePort)))
		}
	}
	if c.Database != nil {
		r.Database = c.Database.Name
	}
	if c.Account != nil {
		r.Account = c.Account.User
	}
	r.Endpoints = lists.Map(c.Endpoints, func(e component.Endpoint) string { return e.Service + "/" + e.Type })
	r.Editions, r.Products = c.Editions, c.Products
	return r
}

func printComponents(p *page, list []componentRow) {
	table(p, []string{"NAME", "KINDS", "IMAGE", "PORTS", "DATABASE", "ACCOUNT", "ENDPOINTS", "AFTER"}, list, func(r componentRow) []string {
		cells := []string{r.Name, strings.Join(r.Kinds, ","), r.Image, strings.Join(r.Ports, ","), r.Database, r.Account,
			strings.Join(r.Endpoints, ","), strings.Join(r.After, ",")}
		for i, c := range cells {
			cells[i] = cmp.Or(c, "-")
		}
		return cells
	})
}

func newOperatorCRDCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "crd",
		Short:   "Print the custom resource definitions",
		Long:    "Prints the definitions that this operator needs: OnecloudCluster, OnecloudOperation and OnecloudMachine.",
		Example: "  ocadm operator crd\n  ocadm operator crd | kubectl apply --server-side -f -",
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

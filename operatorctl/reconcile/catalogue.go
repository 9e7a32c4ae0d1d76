// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// catalogue is the list of components of this build.
type catalogue struct {
	components []component.Component
	// names are in the order of the catalogue, order has dependencies first.
	names, order []string
	images       map[string]string
}

// newCatalogue orders the components; nil means the built-in ones, whose own test keeps them free of cycles. own is the operator's image.
func newCatalogue(own string, components []component.Component) (catalogue, error) {
	table, err := images.Load()
	if err != nil {
		return catalogue{}, err
	}
	if components == nil {
		components = catalog.All()
	}
	c := catalogue{components: components, images: table.Refs()}
	if own != "" {
		c.images[component.OwnImage] = own
	}
	after := map[string][]string{}
	for _, one := range c.components {
		c.names = append(c.names, one.Name)
		after[one.Name] = one.After
	}
	if c.order, err = engine.Order(c.names, func(n string) []string { return after[n] }); err != nil {
		return c, fmt.Errorf("ordering the catalogue: %w", err)
	}
	return c, nil
}

// only returns a catalogue of just the named components.
func (c catalogue) only(names []string) catalogue {
	in := func(name string) bool { return slices.Contains(names, name) }
	out := catalogue{images: c.images}
	for _, one := range c.components {
		if in(one.Name) {
			out.components, out.names = append(out.components, one), append(out.names, one.Name)
		}
	}
	out.order = lists.Filter(c.order, in)
	return out
}

// componentOf returns the name of the component that an object belongs to, from its label. A read-only replica ("-slave") belongs to its component. A
// component may label its objects with another name.
func (c catalogue) componentOf(o client.Object) string {
	label := strings.TrimSuffix(o.GetLabels()[v1alpha1.LabelComponent], "-slave")
	return cmp.Or(lists.First(c.components, func(one component.Component) bool {
		return label != "" && one.Workload.PodLabels[v1alpha1.LabelComponent] == label
	}).Name, label)
}

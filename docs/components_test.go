// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"yunion.io/x/ocadm/docs"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// It reads the table of components, which needs no program: a test builds the tests of this directory to follow "Adding a component".
func TestDocumentedComponents(t *testing.T) {
	var all, single strings.Builder
	all.WriteString("| component | block | what it is | runs as | ports |\n|---|---|---|---|---|\n")
	single.WriteString("| component | why one copy runs |\n|---|---|\n")
	for _, c := range catalog.All() {
		kind := cmp.Or(c.Workload.Kind, component.Deployment)
		if kind == component.NoWorkload {
			kind = ""
		}
		what := c.Summary
		if c.OffByDefault {
			what += " (off by default)"
		}
		what += inBrackets(c.Products) + inBrackets(c.Editions)
		var ports []string
		for _, s := range c.Services() {
			for _, p := range s.Ports {
				ports = append(ports, fmt.Sprintf("%s %d", p.Name, max(p.Port, p.NodePort)))
			}
		}
		fmt.Fprintf(&all, "| %s | `%s` | %s | %s | %s |\n", c.Name, strings.Join(c.SpecPath(), "."), docs.Cell(what), kind, strings.Join(ports, ", "))
		if c.Single != "" {
			fmt.Fprintf(&single, "| %s | %s |\n", c.Name, docs.Cell(c.Single))
		}
	}
	docs.Block(t, "docs/reference/components.md", "components", all.String())
	docs.Block(t, "docs/reference/components.md", "single", single.String())
}

func inBrackets[T ~string](list []T) string {
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ", ") + ")"
}

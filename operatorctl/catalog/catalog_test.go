// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/templates/services"
	"yunion.io/x/ocadm/test/require"
)

func TestNamesAndKeys(t *testing.T) {
	seen := map[string]bool{}
	name := regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	spec := &v1alpha1.OnecloudClusterSpec{}
	for _, c := range catalog.All() {
		if seen[c.Name] {
			t.Errorf("%s is listed twice", c.Name)
		}
		seen[c.Name] = true
		if !name.MatchString(c.Name) || len(c.Name) > 26 {
			t.Errorf("%q is not a name for objects", c.Name)
		}
		if c.Summary == "" {
			t.Errorf("%s has no summary", c.Name)
		}
		if c.SpecKey != "" && spec.Component(c.SpecKey) == nil {
			t.Errorf("%s: the spec has no block %q", c.Name, c.SpecKey)
		}
		for _, s := range c.Workload.Sidecars {
			if s.SpecKey != "" && spec.Container(s.SpecKey) == nil {
				t.Errorf("%s: the spec has no block %q", c.Name, s.SpecKey)
			}
		}
		if c.StatusKey != "" && c.StatusKey != "etcd" && (&v1alpha1.Legacy{}).Workload(c.StatusKey) == nil {
			t.Errorf("%s: the status has no key %q", c.Name, c.StatusKey)
		}
	}
}

// All components share the node ports and the identifiers outside Kubernetes.
func TestNothingIsTakenTwice(t *testing.T) {
	owner := map[string]string{}
	claim := func(what, who string) {
		if other, taken := owner[what]; taken && other != who {
			t.Errorf("%s belongs to %s and %s", what, other, who)
		}
		owner[what] = who
	}
	for _, c := range catalog.All() {
		for _, s := range c.Services() {
			ports := map[string]bool{}
			for _, p := range s.Ports {
				if ports[p.Name] {
					t.Errorf("%s has two ports %q", c.Name, p.Name)
				}
				ports[p.Name] = true
				n := max(p.NodePort, p.Port)
				if s.ClusterIP || s.Headless {
					continue
				}
				if n < 30000 || n > 32767 {
					t.Errorf("%s: %d is no NodePort", c.Name, n)
				}
				claim(fmt.Sprint("port ", n), c.Name)
				if p.SpecKey == "" {
					t.Errorf("%s: the port %q cannot be chosen: only one cloud of a cluster could have it", c.Name, p.Name)
				}
			}
		}
		if c.Database != nil {
			claim("database "+c.Database.Name, c.Name)
			claim("database account "+c.Database.Account(), c.Name)
		}
		if c.Account != nil {
			claim("account "+c.Account.User, c.Name)
		}
		for _, e := range c.Endpoints {
			claim("endpoint "+e.Service, c.Name)
		}
	}
}

func TestAfterIsKnownAndAcyclic(t *testing.T) {
	after := map[string][]string{}
	for _, c := range catalog.All() {
		after[c.Name] = c.After
	}
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		if slices.Contains(path, name) {
			t.Fatalf("%s depend on each other", strings.Join(append(path, name), " → "))
		}
		next, known := after[name]
		if !known {
			t.Fatalf("%s comes after %q, which does not exist", path[len(path)-1], name)
		}
		for _, n := range next {
			visit(n, append(path, name))
		}
	}
	for name := range after {
		visit(name, nil)
	}
}

func TestTemplatesParse(t *testing.T) {
	used := map[string]bool{}
	for _, c := range catalog.All() {
		if c.Config == nil {
			continue
		}
		if c.Config.Plain != "" {
			used[c.Config.Plain] = true
		}
		if c.Config.Sealed != "" {
			used[c.Config.Sealed] = true
		}
		if of := c.Config.Of; of != "" && !slices.ContainsFunc(catalog.All(), func(o component.Component) bool { return o.Name == of && o.Config != nil }) {
			t.Errorf("%s shares the configuration of %q, which has none", c.Name, of)
		}
	}
	files, err := fs.Glob(services.FS, "*.tmpl")
	require.NoError(t, err)
	for _, f := range files {
		if _, err := template.ParseFS(services.FS, f); err != nil {
			t.Error(err)
		}
		if !used[f] {
			t.Errorf("%s belongs to no component", f)
		}
		delete(used, f)
	}
	for f := range used {
		t.Errorf("template %s does not exist", f)
	}
}

// Every image resolves, in every edition and product.
func TestImagesResolve(t *testing.T) {
	table, err := images.Load()
	require.NoError(t, err)
	for _, edition := range []string{"ce", "ce/support", "ee"} {
		cr := &v1alpha1.OnecloudCluster{}
		cr.Name, cr.Annotations = "default", map[string]string{v1alpha1.AnnotationEdition: edition}
		cr.Spec.MySQL.Host, cr.Spec.Version = "db", "v4.0.4"
		cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
		require.NoError(t, err)
		for name, r := range cluster.Components {
			if r.Problem != "" || r.FullImage == "" && r.Workload.Kind != component.NoWorkload {
				t.Errorf("%s in %s: image %q, %s", name, edition, r.FullImage, r.Problem)
			}
		}
	}
}

// Special cases stay few: if more than a fifth have an Adapt, the component types lack a field.
func TestFewAreOdd(t *testing.T) {
	odd := 0
	all := catalog.All()
	for _, c := range all {
		if c.Adapt != nil {
			odd++
		}
	}
	if odd*5 > len(all) {
		t.Errorf("%d of %d components have an Adapt", odd, len(all))
	}
}

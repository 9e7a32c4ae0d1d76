// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// base is the case with complete goldens; the others only contain the components that differ from it.
const base = "testdata/ce"

// TestGolden compares the rendered objects with testdata/<case>/<component>.yaml; UPDATE=1 rewrites the files.
func TestGolden(t *testing.T) {
	update := os.Getenv("UPDATE") == "1"
	cases, err := filepath.Glob("testdata/*/cr.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	usual := rendered(t, base+"/cr.yaml")
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			all := rendered(t, file)
			seen := map[string]bool{"cr.yaml": true, "enabled.txt": true}
			golden(t, filepath.Join(dir, "enabled.txt"), strings.Join(slices.Sorted(maps.Keys(all)), "\n")+"\n", update)
			for name, got := range all {
				if dir != base && got == usual[name] {
					continue
				}
				seen[name+".yaml"] = true
				golden(t, filepath.Join(dir, name+".yaml"), got, update)
			}
			stale(t, dir, seen, update)
		})
	}
}

// rendered returns the text of every enabled component.
func rendered(t *testing.T, file string) map[string]string {
	t.Helper()
	cluster := resolved(t, file)
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	out := map[string]string{}
	for name, r := range cluster.Components {
		if !r.Enabled {
			continue
		}
		o, err := render.Component(r, in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := render.YAML(render.List(o))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

func golden(t *testing.T, file, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%v (make golden writes it)", err)
		return
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (make golden, if that is meant):\n%s", file, d)
	}
}

func stale(t *testing.T, dir string, seen map[string]bool, update bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if seen[e.Name()] {
			continue
		}
		if update {
			_ = os.Remove(filepath.Join(dir, e.Name())) // the next run without UPDATE fails if it is still there
			continue
		}
		t.Errorf("%s is no longer rendered (make golden removes it)", filepath.Join(dir, e.Name()))
	}
}

func cloudOf(t testing.TB, file string) *v1alpha1.OnecloudCluster {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cr := &v1alpha1.OnecloudCluster{}
	if err := yaml.UnmarshalStrict(text, cr); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return cr
}

func resolved(t testing.TB, file string) component.Cluster {
	t.Helper()
	return described(t, cloudOf(t, file))
}

// described resolves a cloud.
func described(t testing.TB, cr *v1alpha1.OnecloudCluster) component.Cluster {
	t.Helper()
	table, err := images.Load()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestDeterministic renders several times and expects the same bytes.
func TestDeterministic(t *testing.T) {
	first := rendered(t, base+"/cr.yaml")
	for range 5 {
		if d := cmp.Diff(first, rendered(t, base+"/cr.yaml")); d != "" {
			t.Fatal("two renders of the same cloud differ:\n" + d)
		}
	}
}

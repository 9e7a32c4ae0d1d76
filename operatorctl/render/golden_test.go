// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// base is the case with complete goldens. The others hold how a component differs from it, and in full those that it has not.
const base = "testdata/ce"

// TestGolden compares the rendered objects with testdata/<case>/<component>.yaml or .diff; UPDATE=1 rewrites the files.
func TestGolden(t *testing.T) {
	update := os.Getenv("UPDATE") != ""
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
			require.Golden(t, filepath.Join(dir, "enabled.txt"), strings.Join(slices.Sorted(maps.Keys(all)), "\n")+"\n")
			for name, got := range all {
				file := name + ".yaml"
				if was := usual[name]; dir != base && got == was {
					continue
				} else if dir != base && was != "" {
					file, got = name+".diff", changes(t, was, got)
				}
				seen[file] = true
				require.Golden(t, filepath.Join(dir, file), got)
			}
			stale(t, dir, seen, update)
		})
	}
}

var hunk = regexp.MustCompile(`(?m)^@@ -([0-9]+).*$`)

// changes returns the lines that differ. A kind of object stands in place of line numbers, which would change with every line above.
func changes(t *testing.T, was, got string) string {
	t.Helper()
	const context = 2
	a := difflib.SplitLines(was)
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: a, B: difflib.SplitLines(got), Context: context})
	require.NoError(t, err)
	return hunk.ReplaceAllStringFunc(text, func(h string) string {
		line, _ := strconv.Atoi(hunk.FindStringSubmatch(h)[1])
		object := min(line+context, len(a)) - 1
		for object > 0 && a[object-1] != "---\n" {
			object--
		}
		kind := slices.IndexFunc(a[object:], func(l string) bool { return strings.HasPrefix(l, "kind: ") })
		return "@@ " + strings.TrimSpace(a[object+max(kind, 0)])
	})
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
		require.NoError(t, err)
		out[name] = string(text)
	}
	return out
}

func stale(t *testing.T, dir string, seen map[string]bool, update bool) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
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
	require.NoError(t, err)
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
	require.NoError(t, err)
	cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
	require.NoError(t, err)
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

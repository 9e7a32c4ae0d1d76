// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/test/require"
)

// deviation is a fact, or a pattern of facts, in which this catalog differs from the earlier operator, and why.
type deviation struct {
	// Component is a name, several separated by commas, or "*"; Fact may hold "*" for any text.
	Component, Fact string
	// Here is the fact in this catalog; "-" means that it is missing. Empty leaves it open: the deviation covers many facts.
	Here string
	Why  string

	pattern *regexp.Regexp
	used    bool
}

func (d *deviation) covers(component, fact, here string) bool {
	if d.Component != "*" && !slices.Contains(strings.Split(d.Component, ", "), component) {
		return false
	}
	return d.pattern.MatchString(fact) && (d.Here == "" || d.Here == here || d.Here == "-" && here == "")
}

// TestAgainstEarlierOperator compares every component, fact by fact, with what the earlier operator rendered: existing clouds must be adoptable, and
// external readers must find what they found before. Intended differences are in testdata/deviations.yaml, which may not list any that no longer exist.
func TestAgainstEarlierOperator(t *testing.T) {
	earlier := map[string]map[string]string{}
	load(t, "testdata/earlier.yaml", &earlier)
	var deviations []*deviation
	load(t, "testdata/deviations.yaml", &deviations)
	for _, d := range deviations {
		if d.Why == "" {
			t.Errorf("%s, %s: no reason is given", d.Component, d.Fact)
		}
		d.pattern = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(d.Fact), `\*`, ".*") + "$")
	}
	seen := map[string]bool{}
	for _, c := range catalog.All() {
		seen[c.Name] = true
		then := earlier[c.Name]
		if then == nil {
			continue // ours
		}
		compareFacts(t, c.Name, then, factsOf(t, c.Name), deviations)
	}
	for name := range earlier {
		if !seen[name] {
			t.Errorf("%s is missing in the catalogue", name)
		}
	}
	for _, d := range deviations {
		if !d.used {
			t.Errorf("%s, %s: no deviation (any more): take it out of deviations.yaml", d.Component, d.Fact)
		}
	}
}

func compareFacts(t *testing.T, name string, then, now map[string]string, deviations []*deviation) {
	t.Helper()
	keys := map[string]bool{}
	for _, m := range []map[string]string{then, now} {
		for k := range m {
			keys[k] = true
		}
	}
	for _, fact := range slices.Sorted(maps.Keys(keys)) {
		if then[fact] == now[fact] {
			continue
		}
		covered := false
		for _, d := range deviations {
			if d.covers(name, fact, now[fact]) {
				d.used, covered = true, true
			}
		}
		if !covered {
			t.Errorf("%s: %s:\n\tearlier %q\n\there    %q", name, fact, then[fact], now[fact])
		}
	}
}

func load(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

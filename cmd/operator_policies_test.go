// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/test/require"
)

func TestOperatorPolicies(t *testing.T) {
	table, err := operator(t, "", "policies")
	require.NoError(t, err)
	words := strings.Join(strings.Fields(table), " ")
	for _, want := range []string{"ROLE POLICIES PROJECT ABOUT admin sysadmin system ", " project_owner project-admin any ", " POLICY SCOPE ABOUT domain-admin domain ", " sysadmin system everything"} {
		if !strings.Contains(words, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	for _, format := range []string{"json", "yaml"} {
		text, err := operator(t, "", "policies", "-o", format)
		require.NoError(t, err)
		data, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		var got map[string][]map[string]any
		require.NoError(t, json.Unmarshal(data, &got))
		if len(got) != 2 || len(got["policies"]) != 170 || len(got["roles"]) != 17 {
			t.Fatalf("%s: %d policies, %d roles, keys %q", format, len(got["policies"]), len(got["roles"]), slices.Sorted(maps.Keys(got)))
		}
		for list, keys := range map[string][]string{"policies": {"name", "policy", "scope"}, "roles": {"name", "policies", "project"}} {
			for _, x := range got[list] {
				if have := slices.Sorted(maps.Keys(x)); !slices.Equal(have, keys) {
					t.Errorf("%s: keys %q in %s", format, have, list)
				}
			}
		}
	}
	if _, err := operator(t, "", "policies", "-o", "wide"); err == nil {
		t.Error("an unknown format is taken")
	}
	if _, err := operator(t, "", "policies", "extra"); err == nil {
		t.Error("an argument is taken")
	}
}

// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/test/require"
)

// measured is a JSON file with the policies and roles of a running cloud (public release 2026-08), next to the checkout. It is not part of the
// repository.
const measured = "../../../shared/facts/policies.json"

// digest is that of the table when last compared with the real one. Change it only together with such a comparison.
const digest = "ea490dc8d1b2eccbdc600189aa193ea3d2ece01a537be7ea0728660db72292d8"

func standard(t *testing.T) policy.Table {
	t.Helper()
	table, err := policy.Standard()
	require.NoError(t, err)
	return table
}

func TestTableHasNotMoved(t *testing.T) {
	table := standard(t)
	table.Policies, table.Roles = slices.Clone(table.Policies), slices.Clone(table.Roles)
	for i := range table.Policies {
		table.Policies[i].About = ""
	}
	for i := range table.Roles {
		table.Roles[i].About = ""
	}
	data, err := json.Marshal(table)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != digest || len(table.Policies) != 170 || len(table.Roles) != 17 {
		t.Errorf("%d policies, %d roles, digest %s", len(table.Policies), len(table.Roles), got)
	}
}

func TestTableMatchesARealCloud(t *testing.T) {
	data, err := os.ReadFile(measured)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no table of a running cloud lies beside the checkout")
	}
	require.NoError(t, err)
	var real struct {
		Policies []struct {
			Name, Scope string
			Policy      map[string]any
		}
		Roles []struct {
			Name, Project string
			Policies      []string
			IsPublic      bool
		}
	}
	require.NoError(t, json.Unmarshal(data, &real))
	var want policy.Table
	for _, p := range real.Policies {
		want.Policies = append(want.Policies, policy.Policy{Name: p.Name, Scope: p.Scope, Rules: p.Policy})
	}
	slices.SortFunc(want.Policies, func(a, b policy.Policy) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range real.Roles {
		want.Roles = append(want.Roles, policy.Role{Name: r.Name, Policies: r.Policies, Project: r.Project, Public: r.IsPublic})
	}
	got := standard(t)
	silent := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".About" }, cmp.Ignore())
	if diff := cmp.Diff(want, got, silent); diff != "" {
		t.Errorf("(-real +ours)\n%s", diff)
	}
}

// The file has no mistakes: nothing is defined twice, and every name in it exists.
func TestNamesInTheTable(t *testing.T) {
	table, known := standard(t), map[string]bool{}
	for _, p := range table.Policies {
		if known[p.Name] || !slices.Contains([]string{"system", "domain", "project"}, p.Scope) {
			t.Errorf("policy %q of scope %q is defined twice, or has an unknown scope", p.Name, p.Scope)
		}
		known[p.Name] = true
		for service, body := range p.Rules["policy"].(map[string]any) {
			if resources, nested := body.(map[string]any); nested && len(resources) == 0 {
				t.Errorf("policy %q says nothing of %s: its level is unknown", p.Name, service)
			}
		}
	}
	roles := map[string]bool{}
	for _, r := range table.Roles {
		if roles[r.Name] {
			t.Errorf("role %q is defined twice", r.Name)
		}
		roles[r.Name] = true
		for _, p := range r.Policies {
			if !known[p] {
				t.Errorf("role %q has the unknown policy %q", r.Name, p)
			}
		}
	}
}

// Everything has a description, and every level matches its name.
func TestExpansion(t *testing.T) {
	table := standard(t)
	byName := map[string]policy.Policy{}
	for _, p := range table.Policies {
		if p.About == "" {
			t.Errorf("policy %s has no description", p.Name)
		}
		byName[p.Name] = p
	}
	for _, r := range table.Roles {
		if r.About == "" {
			t.Errorf("role %s has no description", r.Name)
		}
	}
	for name, want := range map[string]string{
		"sysadmin":            `{"policy":{"*":"allow"}}`,
		"project-oss-admin":   `{"policy":{"compute":{"buckets":"allow"}}}`,
		"notify-viewer":       `{"policy":{"notify":{"*":{"*":"deny","get":"allow","list":"allow"}}}}`,
		"domain-image-editor": `{"policy":{"image":{"*":{"*":"allow","create":"deny","delete":"deny","perform":{"*":"allow","clone":"deny","disable":"deny","purge":"deny"}}}}}`,
	} {
		got, err := json.Marshal(byName[name].Rules)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, want %s (%v)", name, got, want, err)
		}
	}
	if got := table.Grants(); got != 24 {
		t.Errorf("%d grants", got)
	}
}

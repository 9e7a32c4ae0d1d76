// SPDX-License-Identifier: Apache-2.0

package rest_test

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/require"
)

// standard returns the standard policies of a role, by scope.
func standard(t *testing.T, role string) rest.Policies {
	t.Helper()
	table, err := policy.Standard()
	require.NoError(t, err)
	out := rest.Policies{}
	for _, r := range table.Roles {
		if r.Name != role {
			continue
		}
		for _, p := range table.Policies {
			for _, name := range r.Policies {
				if p.Name == name {
					decoded, err := rest.Decode(p.Rules)
					require.NoError(t, err)
					out[p.Scope] = append(out[p.Scope], decoded)
				}
			}
		}
	}
	return out
}

func TestReachOfStandardRoles(t *testing.T) {
	for _, tc := range []struct {
		role, path string
		want       rest.Scope
	}{
		{"admin", "compute servers delete", rest.System},
		{"admin", "identity services create", rest.System},
		{"domainadmin", "compute servers create", rest.Domain},
		{"domainadmin", "identity users create", rest.Domain},
		{"domainadmin", "identity services list", rest.None},
		{"domainadmin", "compute zones create", rest.None},
		{"domainadmin", "compute zones list", rest.System}, // allowed for all
		{"project_owner", "compute servers create", rest.Project},
		{"project_owner", "compute servers perform purge", rest.Project},
		{"project_owner", "identity users create", rest.None},
		{"project_owner", "identity users list", rest.Project}, // allowed for all
		{"project_owner", "compute hosts list", rest.None},
		{"project_editor", "compute servers list", rest.Project},
		{"project_editor", "compute servers update", rest.Project},
		{"project_editor", "compute servers create", rest.None},
		{"project_editor", "compute servers perform start", rest.Project},
		{"project_editor", "compute servers perform purge", rest.None},
		{"project_editor", "compute servers perform save-image", rest.None},
		{"project_editor", "compute eips perform save-image", rest.Project},
		{"project_editor", "compute buckets perform upload", rest.None},
		{"project_viewer", "compute servers list", rest.Project},
		{"project_viewer", "compute servers update", rest.None},
		{"project_viewer", "compute servers perform start", rest.None},
		{"fa", "compute servers list", rest.None},
		{"fa", "compute usages list", rest.System},
		{"fa", "compute usages update", rest.None},
		{"fa", "meter bills delete", rest.System},
		{"fa", "identity projects list", rest.System},
		{"fa", "identity projects get", rest.None},
		{"fa", "notify receivers create", rest.System},
		{"fa", "notify topics list", rest.None},
		{"sys_opsadmin", "compute servers list", rest.System},
		{"sys_opsadmin", "compute servers perform stop", rest.None},
		{"sys_opsadmin", "compute servers perform migrate", rest.System},
		{"sys_opsadmin", "compute events list", rest.None},
		{"sys_opsadmin", "identity users create", rest.System},
		{"sys_opsadmin", "identity users delete", rest.None},
		{"sys_opsadmin", "identity roles list", rest.System},
		{"sys_secadmin", "compute servers get vnc", rest.None},
		{"sys_secadmin", "compute servers get", rest.System},
		{"sys_secadmin", "identity users create", rest.None},
		{"sys_secadmin", "identity roles create", rest.System},
		{"sys_adtadmin", "log actions list", rest.System},
		{"sys_adtadmin", "compute servers list", rest.None},
		{"sys_adtadmin", "compute events delete", rest.System},
		{"normal_user", "compute servers create", rest.Project},
		{"normal_user", "compute servers delete", rest.None},
		{"normal_user", "compute servers perform change-config", rest.None},
		{"normal_user", "compute servers perform start", rest.Project},
		{"normal_user", "compute disks delete", rest.None},
		{"", "compute servers list", rest.None},
		{"", "compute zones list", rest.System},
	} {
		path := strings.Fields(tc.path)
		got := rest.Caller{Policies: standard(t, tc.role)}.Reach(path[0], path[1], path[2], path[3:]...)
		if got != tc.want {
			t.Errorf("%s: %s reaches %s, want %s", tc.role, tc.path, got, tc.want)
		}
	}
}

func TestListUsesTheRequestedScope(t *testing.T) {
	for _, tc := range []struct {
		role, resource, asked string
		all, ok               bool
		want                  rest.Scope
	}{
		{"project_owner", "servers", "", false, true, rest.Project},
		{"project_owner", "servers", "domain", false, false, rest.Domain},
		{"project_owner", "servers", "max", false, true, rest.Project},
		{"domainadmin", "servers", "", false, true, rest.Project},
		{"domainadmin", "servers", "domain", false, true, rest.Domain},
		{"domainadmin", "servers", "system", false, false, rest.System},
		{"domainadmin", "servers", "", true, true, rest.Domain},
		{"admin", "servers", "system", false, true, rest.System},
		{"", "servers", "", false, false, rest.Project},
		{"", "servers", "max", false, false, rest.None},
	} {
		got, ok := rest.Caller{Policies: standard(t, tc.role)}.List("compute", tc.resource, tc.asked, tc.all)
		if got != tc.want || ok != tc.ok {
			t.Errorf("%s lists %s in %q (all %v): %s %v, want %s %v", tc.role, tc.resource, tc.asked, tc.all, got, ok, tc.want, tc.ok)
		}
	}
}

// TestBootstrapRights checks that a fresh identity service lets its administrator create policies and roles, and nothing else.
func TestBootstrapRights(t *testing.T) {
	admin := rest.Caller{Administrator: true}
	for path, want := range map[string]rest.Scope{
		"identity policies create": rest.System, "identity roles perform": rest.System, "identity policies delete": rest.None,
		"identity rolepolicies list": rest.None, "identity services list": rest.None, "compute servers list": rest.None,
	} {
		p := strings.Fields(path)
		if got := admin.Reach(p[0], p[1], p[2]); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestDecodeRules decodes the rules that the real keystone v4.0.2 returned for sysadmin, and rules with tags.
func TestDecodeRules(t *testing.T) {
	everything := map[string]any{"*": map[string]any{"*": map[string]any{"*": "allow"}}}
	tagged := map[string]any{"*": everything["*"], "__project_tags__": []any{map[string]any{"key": "user:team"}}}
	for name, rules := range map[string]any{"plain": everything, "tagged": tagged} {
		if p, err := rest.DecodeRules(rules); err != nil || len(p) != 1 {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	for name, rules := range map[string]any{"blob": map[string]any{"policy": everything}, "empty": map[string]any{}, "nothing": nil} {
		if p, err := rest.DecodeRules(rules); err == nil {
			t.Errorf("%s: %v", name, p)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, blob := range map[string]any{
		"no object": "allow", "no policy": map[string]any{"*": "allow"}, "empty": map[string]any{"policy": map[string]any{}},
		"number": map[string]any{"policy": map[string]any{"compute": 1.0}}, "list": map[string]any{"policy": []any{"allow"}},
	} {
		if p, err := rest.Decode(blob); err == nil {
			t.Errorf("%s: %v", name, p)
		}
	}
}

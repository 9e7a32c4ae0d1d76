// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/test/standin/rbac"
)

// standard are the policies of a role, by scope.
func standard(t *testing.T, role string) rbac.Policies {
	t.Helper()
	table, err := policy.Standard()
	if err != nil {
		t.Fatal(err)
	}
	out := rbac.Policies{}
	for _, r := range table.Roles {
		if r.Name != role {
			continue
		}
		for _, p := range table.Policies {
			for _, name := range r.Policies {
				if p.Name == name {
					decoded, err := rbac.Decode(p.Rules)
					if err != nil {
						t.Fatal(err)
					}
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
		want       rbac.Scope
	}{
		{"admin", "compute servers delete", rbac.System},
		{"admin", "identity services create", rbac.System},
		{"domainadmin", "compute servers create", rbac.Domain},
		{"domainadmin", "identity users create", rbac.Domain},
		{"domainadmin", "identity services list", rbac.None},
		{"domainadmin", "compute zones create", rbac.None},
		{"domainadmin", "compute zones list", rbac.System}, // everybody may
		{"project_owner", "compute servers create", rbac.Project},
		{"project_owner", "compute servers perform purge", rbac.Project},
		{"project_owner", "identity users create", rbac.None},
		{"project_owner", "identity users list", rbac.Project}, // everybody may
		{"project_owner", "compute hosts list", rbac.None},
		{"project_editor", "compute servers list", rbac.Project},
		{"project_editor", "compute servers update", rbac.Project},
		{"project_editor", "compute servers create", rbac.None},
		{"project_editor", "compute servers perform start", rbac.Project},
		{"project_editor", "compute servers perform purge", rbac.None},
		{"project_editor", "compute servers perform save-image", rbac.None},
		{"project_editor", "compute eips perform save-image", rbac.Project},
		{"project_editor", "compute buckets perform upload", rbac.None},
		{"project_viewer", "compute servers list", rbac.Project},
		{"project_viewer", "compute servers update", rbac.None},
		{"project_viewer", "compute servers perform start", rbac.None},
		{"fa", "compute servers list", rbac.None},
		{"fa", "compute usages list", rbac.System},
		{"fa", "compute usages update", rbac.None},
		{"fa", "meter bills delete", rbac.System},
		{"fa", "identity projects list", rbac.System},
		{"fa", "identity projects get", rbac.None},
		{"fa", "notify receivers create", rbac.System},
		{"fa", "notify topics list", rbac.None},
		{"sys_opsadmin", "compute servers list", rbac.System},
		{"sys_opsadmin", "compute servers perform stop", rbac.None},
		{"sys_opsadmin", "compute servers perform migrate", rbac.System},
		{"sys_opsadmin", "compute events list", rbac.None},
		{"sys_opsadmin", "identity users create", rbac.System},
		{"sys_opsadmin", "identity users delete", rbac.None},
		{"sys_opsadmin", "identity roles list", rbac.System},
		{"sys_secadmin", "compute servers get vnc", rbac.None},
		{"sys_secadmin", "compute servers get", rbac.System},
		{"sys_secadmin", "identity users create", rbac.None},
		{"sys_secadmin", "identity roles create", rbac.System},
		{"sys_adtadmin", "log actions list", rbac.System},
		{"sys_adtadmin", "compute servers list", rbac.None},
		{"sys_adtadmin", "compute events delete", rbac.System},
		{"normal_user", "compute servers create", rbac.Project},
		{"normal_user", "compute servers delete", rbac.None},
		{"normal_user", "compute servers perform change-config", rbac.None},
		{"normal_user", "compute servers perform start", rbac.Project},
		{"normal_user", "compute disks delete", rbac.None},
		{"", "compute servers list", rbac.None},
		{"", "compute zones list", rbac.System},
	} {
		path := strings.Fields(tc.path)
		got := rbac.Caller{Policies: standard(t, tc.role)}.Reach(path[0], path[1], path[2], path[3:]...)
		if got != tc.want {
			t.Errorf("%s: %s reaches %s, want %s", tc.role, tc.path, got, tc.want)
		}
	}
}

func TestListTakesTheScopeThatIsAskedFor(t *testing.T) {
	for _, tc := range []struct {
		role, resource, asked string
		all, ok               bool
		want                  rbac.Scope
	}{
		{"project_owner", "servers", "", false, true, rbac.Project},
		{"project_owner", "servers", "domain", false, false, rbac.Domain},
		{"project_owner", "servers", "max", false, true, rbac.Project},
		{"domainadmin", "servers", "", false, true, rbac.Project},
		{"domainadmin", "servers", "domain", false, true, rbac.Domain},
		{"domainadmin", "servers", "system", false, false, rbac.System},
		{"domainadmin", "servers", "", true, true, rbac.Domain},
		{"admin", "servers", "system", false, true, rbac.System},
		{"", "servers", "", false, false, rbac.Project},
		{"", "servers", "max", false, false, rbac.None},
	} {
		got, ok := rbac.Caller{Policies: standard(t, tc.role)}.List("compute", tc.resource, tc.asked, tc.all)
		if got != tc.want || ok != tc.ok {
			t.Errorf("%s lists %s in %q (all %v): %s %v, want %s %v", tc.role, tc.resource, tc.asked, tc.all, got, ok, tc.want, tc.ok)
		}
	}
}

// A fresh identity service lets its administrator make policies and roles, and nothing else.
func TestBootstrapRights(t *testing.T) {
	admin := rbac.Caller{Administrator: true}
	for path, want := range map[string]rbac.Scope{
		"identity policies create": rbac.System, "identity roles perform": rbac.System, "identity policies delete": rbac.None,
		"identity rolepolicies list": rbac.None, "identity services list": rbac.None, "compute servers list": rbac.None,
	} {
		p := strings.Fields(path)
		if got := admin.Reach(p[0], p[1], p[2]); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, blob := range map[string]any{
		"no object": "allow", "no policy": map[string]any{"*": "allow"}, "empty": map[string]any{"policy": map[string]any{}},
		"number": map[string]any{"policy": map[string]any{"compute": 1.0}}, "list": map[string]any{"policy": []any{"allow"}},
	} {
		if p, err := rbac.Decode(blob); err == nil {
			t.Errorf("%s: %v", name, p)
		}
	}
}

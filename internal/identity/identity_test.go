// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"yunion.io/x/ocadm/test/require"
)

// step is one Ensure call and the writes that it must send.
type step struct {
	name   string
	before func(f *fake)
	do     func(c *Client, s *Snapshot) (bool, error)
	writes []string
}

// runSteps reads a new snapshot before each step.
func runSteps(t *testing.T, f *fake, steps []step) {
	t.Helper()
	c := f.client()
	for _, st := range steps {
		if st.before != nil {
			st.before(f)
		}
		s := f.snapshot(c)
		f.writes()
		changed, err := st.do(c, s)
		if err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		got := f.writes()
		if diff := cmp.Diff(st.writes, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", st.name, diff)
		}
		if changed != (len(st.writes) > 0) {
			t.Errorf("%s: changed %v after %v", st.name, changed, got)
		}
		// The snapshot includes the change: the same call again sends nothing.
		if changed, err := st.do(c, s); changed || err != nil {
			t.Errorf("%s again with the same snapshot: changed %v, %v", st.name, changed, err)
		}
		if got := f.writes(); len(got) > 0 {
			t.Errorf("%s again with the same snapshot: %v", st.name, got)
		}
	}
}

func TestEnsurePolicy(t *testing.T) {
	f := newFake(t)
	all := Policy{Name: "sysadmin", Scope: "system", Blob: map[string]any{"policy": map[string]any{"*": "allow"}}}
	some := Policy{Name: "sysadmin", Scope: "domain", Blob: map[string]any{"policy": map[string]any{"compute": "allow"}}}
	ensure := func(p Policy) func(*Client, *Snapshot) (bool, error) {
		return func(c *Client, _ *Snapshot) (bool, error) { return c.EnsurePolicy(t.Context(), p) }
	}
	runSteps(t, f, []step{
		{"absent", nil, ensure(all), []string{"POST /policies"}},
		{"same", nil, ensure(all), nil},
		{"other rules and scope", nil, ensure(some), []string{"PUT /policies/policies-1"}},
		{"disabled", func(f *fake) { f.find("policies", "sysadmin")["enabled"] = false }, ensure(some), []string{"PUT /policies/policies-1"}},
	})
	want := record{"id": "policies-1", "name": "sysadmin", "type": "sysadmin", "description": "sysadmin", "scope": "domain", "enabled": true,
		"is_system": true, "is_public": true, "blob": record{"policy": record{"compute": "allow"}}}
	if diff := cmp.Diff(want, f.find("policies", "sysadmin")); diff != "" {
		t.Error(diff)
	}
}

func TestEnsureRolePolicy(t *testing.T) {
	f := newFake(t)
	ensure := func(c *Client, _ *Snapshot) (bool, error) {
		return c.EnsureRolePolicy(t.Context(), "admin", "system", "sysadmin")
	}
	f.add("policies", record{"id": "pol-1", "name": "sysadmin", "scope": "system"})
	runSteps(t, f, []step{
		{"absent", nil, ensure, []string{"POST /roles/r-admin/add-policy"}},
		{"same", nil, ensure, nil},
		{"in another project only", func(f *fake) {
			r := f.tables["rolepolicies"][0]
			r["project_id"], r["project"] = "p-other", "other"
		}, ensure, []string{"POST /roles/r-admin/add-policy"}},
	})
	if _, err := f.client().EnsureRolePolicy(t.Context(), "nobody", "system", "sysadmin"); !IsNotFound(err) {
		t.Errorf("an unknown role: %v", err)
	}
}

func TestEnsureRegion(t *testing.T) {
	f := newFake(t)
	ensure := func(c *Client, s *Snapshot) (bool, error) { return c.EnsureRegion(t.Context(), s, "region0-zone0") }
	runSteps(t, f, []step{
		{"absent", nil, ensure, []string{"POST /regions"}},
		{"same", nil, ensure, nil},
	})
}

func TestEnsureService(t *testing.T) {
	f := newFake(t)
	var ids []string
	ensure := func(c *Client, s *Snapshot) (bool, error) {
		id, changed, err := c.EnsureService(t.Context(), s, "glance", "image")
		ids = append(ids, id)
		return changed, err
	}
	runSteps(t, f, []step{
		{"absent", nil, ensure, []string{"POST /services"}},
		{"same", nil, ensure, nil},
		{"disabled", func(f *fake) { f.find("services", "glance")["enabled"] = false }, ensure, []string{"PUT /services/services-1"}},
	})
	if ids = slices.Compact(ids); !slices.Equal(ids, []string{"services-1"}) {
		t.Errorf("ids %v", ids)
	}
	c := f.client()
	s := f.snapshot(c)
	if _, _, err := c.EnsureService(t.Context(), s, "glance", "video"); err == nil {
		t.Error("another type was taken")
	}
	// Created by another client since the snapshot was read.
	f.add("services", record{"id": "late", "name": "late", "type": "late", "enabled": true})
	if id, changed, err := c.EnsureService(t.Context(), s, "late", "late"); id != "late" || changed || err != nil {
		t.Errorf("%q %v %v", id, changed, err)
	}
}

func TestEnsureEndpoint(t *testing.T) {
	f := newFake(t)
	f.add("services", record{"id": "s1", "name": "glance", "type": "image", "enabled": true})
	f.add("endpoints", record{"id": "other-region", "service_id": "s1", "region_id": "r2", "interface": "public", "url": "https://x", "enabled": true})
	want := func(url string, enabled bool) func(*Client, *Snapshot) (bool, error) {
		return func(c *Client, s *Snapshot) (bool, error) {
			return c.EnsureEndpoint(t.Context(), s, Endpoint{ServiceID: "glance", RegionID: "r1", Interface: "public", URL: url, Enabled: enabled})
		}
	}
	duplicate := func(id, url string) func(f *fake) {
		return func(f *fake) {
			f.add("endpoints", record{"id": id, "service_id": "s1", "region_id": "r1", "interface": "public", "url": url, "enabled": true})
		}
	}
	runSteps(t, f, []step{
		{"absent", nil, want("https://a", true), []string{"POST /endpoints"}},
		{"same", nil, want("https://a", true), nil},
		{"other URL", nil, want("https://b", true), []string{"PUT /endpoints/endpoints-1"}},
		{"disable", nil, want("https://b", false), []string{"PUT /endpoints/endpoints-1"}},
		{"enable", nil, want("https://b", true), []string{"PUT /endpoints/endpoints-1"}},
		{"a duplicate with an old URL", duplicate("dup1", "https://old"), want("https://b", true), []string{"PUT /endpoints/dup1", "DELETE /endpoints/dup1"}},
		{"the duplicate has the right URL", duplicate("dup2", "https://c"), want("https://c", true),
			[]string{"PUT /endpoints/endpoints-1", "DELETE /endpoints/endpoints-1"}},
		{"disable an interface that it has not", nil, func(c *Client, s *Snapshot) (bool, error) {
			return c.DisableEndpoints(t.Context(), s, "glance", "r1", "slave")
		}, nil},
		{"disable those of the region", nil, func(c *Client, s *Snapshot) (bool, error) { return c.DisableEndpoints(t.Context(), s, "glance", "r1") },
			[]string{"PUT /endpoints/dup2"}},
	})
	c := f.client()
	if _, err := c.EnsureEndpoint(t.Context(), f.snapshot(c), Endpoint{ServiceID: "nobody", Interface: "public"}); !IsNotFound(err) {
		t.Errorf("an unknown service: %v", err)
	}
	if n := len(f.tables["endpoints"]); n != 2 {
		t.Errorf("%d endpoints left, want one in each region", n)
	}
}

func TestEnsureUser(t *testing.T) {
	f := newFake(t)
	want := func(password string) func(*Client, *Snapshot) (bool, error) {
		return func(c *Client, s *Snapshot) (bool, error) {
			id, changed, err := c.EnsureUser(t.Context(), s, "glance", password)
			if err == nil && id != "users-1" {
				t.Errorf("id %q", id)
			}
			return changed, err
		}
	}
	runSteps(t, f, []step{
		{"absent", nil, want("one"), []string{"POST /users"}},
		{"same", nil, want("one"), nil},
		{"other password", nil, want("two"), []string{"PUT /users/users-1"}},
		{"shown in lists", func(f *fake) { f.find("users", "glance")["is_system_account"] = false }, want("two"), []string{"PUT /users/users-1"}},
		{"web console", func(f *fake) { f.find("users", "glance")["allow_web_console"] = true }, want("two"), []string{"PUT /users/users-1"}},
		{"disabled", func(f *fake) { f.find("users", "glance")["enabled"] = false }, want("two"), []string{"PUT /users/users-1"}},
		{"enabled again", nil, want("two"), nil},
	})
	if f.password["glance"] != "two" {
		t.Errorf("password %q", f.password["glance"])
	}
	c := f.client()
	s := f.snapshot(c)
	if _, _, err := c.EnsureUser(t.Context(), s, "x", ""); err == nil {
		t.Error("an account without a password was made")
	}
	// Hidden from the list, or created since.
	f.add("users", record{"id": "late", "name": "late", "enabled": true, "is_system_account": true})
	f.password["late"] = "old"
	if id, changed, err := c.EnsureUser(t.Context(), s, "late", "new"); id != "late" || !changed || err != nil {
		t.Errorf("%q %v %v", id, changed, err)
	}
	if f.password["late"] != "new" {
		t.Error("the password of the existing user was not reset")
	}
}

func TestEnsureUserRole(t *testing.T) {
	f := newFake(t)
	f.add("users", record{"id": "u1", "name": "glance", "enabled": true, "is_system_account": true})
	ensure := func(c *Client, s *Snapshot) (bool, error) {
		return c.EnsureUserRole(t.Context(), s, "glance", "system", "admin")
	}
	runSteps(t, f, []step{
		{"absent", nil, ensure, []string{"PUT /projects/system/users/u1/roles/admin"}},
		{"same", nil, ensure, nil},
	})
}

func TestAllowWebConsole(t *testing.T) {
	f := newFake(t)
	ensure := func(c *Client, _ *Snapshot) (bool, error) { return c.AllowWebConsole(t.Context(), admin) }
	runSteps(t, f, []step{
		{"not allowed", nil, ensure, []string{"PATCH /users/u-admin"}},
		{"same", nil, ensure, nil},
	})
	if _, err := f.client().AllowWebConsole(t.Context(), "nobody"); !IsNotFound(err) {
		t.Errorf("an unknown user: %v", err)
	}
}

func TestEnsureServiceConfig(t *testing.T) {
	f := newFake(t)
	f.add("services", record{"id": "s1", "name": "common", "type": "common", "enabled": true})
	ensure := func(kv ...any) func(*Client, *Snapshot) (bool, error) {
		values := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			values[kv[i].(string)] = kv[i+1]
		}
		return func(c *Client, _ *Snapshot) (bool, error) {
			return c.EnsureServiceConfig(t.Context(), "common", values)
		}
	}
	remove := func(names ...string) func(*Client, *Snapshot) (bool, error) {
		return func(c *Client, _ *Snapshot) (bool, error) {
			return c.RemoveServiceConfig(t.Context(), "common", names...)
		}
	}
	post := []string{"POST /services/common/config"}
	runSteps(t, f, []step{
		{"absent", nil, ensure("api_server", "https://a"), post},
		{"same", nil, ensure("api_server", "https://a"), nil},
		{"one more", nil, ensure("api_server", "https://a", "time_zone", "Asia/Shanghai"), post},
		{"another value", nil, ensure("api_server", "https://b"), post},
		{"one more, one the same", nil, ensure("api_server", "https://b", "n", 1), post},
		{"numbers compare", nil, ensure("n", 1), nil},
		{"two to remove", nil, remove("n", "gone"), post},
		{"removed", nil, remove("n", "gone"), nil},
	})
	got, err := f.client().GetServiceConfig(t.Context(), "common")
	want := ServiceConfig{"default": {"api_server": "https://b", "time_zone": "Asia/Shanghai"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestRecordsAndParameters(t *testing.T) {
	f, zones := newFake(t), Kind{"zones", "zone"}
	drop := func(_ string, changed bool, err error) (bool, error) { return changed, err }
	merge := func(key string, value any) func(*Client, *Snapshot) (bool, error) {
		return func(c *Client, _ *Snapshot) (bool, error) {
			return c.Parameters(f.srv.URL).Ensure(t.Context(), "global-settings", "yunionagent", func(old map[string]any) map[string]any {
				out := map[string]any{key: value}
				for k, v := range old {
					if k != key {
						out[k] = v
					}
				}
				return out
			})
		}
	}
	zone := func(c *Client, _ *Snapshot) (bool, error) {
		return drop(c.Records(f.srv.URL).Ensure(t.Context(), zones, "zone0", nil))
	}
	wire := func(c *Client, _ *Snapshot) (bool, error) {
		return drop(c.Records(f.srv.URL).In(zones, "zone0").Ensure(t.Context(), Kind{"wires", "wire"}, "bcast0", map[string]any{"bandwidth": 1000}))
	}
	tag := func(c *Client, _ *Snapshot) (bool, error) {
		return drop(c.Records(f.srv.URL+"/").Ensure(t.Context(), Kind{"schedtags", "schedtag"}, "same_project", map[string]any{"description": "d"}))
	}
	dynamic := func(c *Client, _ *Snapshot) (bool, error) {
		return drop(c.Records(f.srv.URL).Ensure(t.Context(), Kind{"dynamicschedtags", "dynamicschedtag"}, "d", map[string]any{"enabled": true}))
	}
	runSteps(t, f, []step{
		{"zone", nil, zone, []string{"POST /zones"}},
		{"zone again", nil, zone, nil},
		{"wire", nil, wire, []string{"POST /zones/zone0/wires"}},
		{"wire again", nil, wire, nil},
		{"schedtag", nil, tag, []string{"POST /schedtags"}},
		{"dynamic schedtag", nil, dynamic, []string{"POST /dynamicschedtags"}},
		{"parameter", nil, merge("a", 1), []string{"POST /parameters"}},
		{"parameter again", nil, merge("a", 1), nil},
		{"parameter with another key", nil, merge("b", []string{"x"}), []string{"PUT /parameters/5"}},
	})
	want := []record{{"id": 5, "name": "global-settings", "namespace": "service", "service_id": "yunionagent", "value": record{"a": 1.0, "b": []any{"x"}}}}
	if diff := cmp.Diff(want, f.tables["parameters"]); diff != "" {
		t.Error(diff)
	}
}

// All steps with a fresh identity service, and the number of requests for a cloud of fifty components.
func TestInstallation(t *testing.T) {
	f := newFake(t)
	f.visible = false
	c, ctx := f.client(), t.Context()
	if _, err := c.Snapshot(ctx); !IsForbidden(err) {
		t.Fatalf("a fresh service let the administrator in: %v", err)
	}
	bootstrap := func() (changed bool) {
		t.Helper()
		a, err := c.EnsurePolicy(ctx, Policy{Name: "sysadmin", Scope: "system", Blob: map[string]any{"policy": map[string]any{"*": "allow"}}})
		require.NoError(t, err)
		b, err := c.EnsureRolePolicy(ctx, "admin", "system", "sysadmin")
		require.NoError(t, err)
		return a || b
	}
	if !bootstrap() {
		t.Error("nothing was done")
	}
	if _, err := c.Snapshot(ctx); !IsForbidden(err) {
		t.Fatalf("the policy cannot be visible yet: %v", err)
	}
	f.mu.Lock()
	f.visible = true // The policies were reloaded.
	f.mu.Unlock()
	if bootstrap() {
		t.Error("done twice")
	}
	// Of fifty components, 36 are in the catalogue with two addresses each, 25 have their own account, and 5 have only a name.
	install := func() {
		t.Helper()
		s := f.snapshot(c)
		check := func(_ bool, err error) {
			t.Helper()
			require.NoError(t, err)
		}
		check(c.EnsureRegion(ctx, s, "region0"))
		for i := range 41 {
			name := fmt.Sprintf("service%d", i)
			id, _, err := c.EnsureService(ctx, s, name, name)
			check(false, err)
			for _, inf := range []string{"public", "internal"} {
				if i < 36 {
					check(c.EnsureEndpoint(ctx, s, Endpoint{ServiceID: id, RegionID: "region0", Interface: inf, URL: "https://" + name, Enabled: true}))
				}
			}
			if i < 25 {
				user, _, err := c.EnsureUser(ctx, s, name, "pw")
				check(false, err)
				check(c.EnsureUserRole(ctx, s, user, "system", "admin"))
			}
		}
		check(c.EnsureServiceConfig(ctx, "service40", map[string]any{"api_server": "x"}))
	}
	install()
	f.mu.Lock()
	n := len(f.requests) + f.logins
	f.mu.Unlock()
	if n > 200 {
		t.Errorf("%d requests, 200 are the budget", n)
	} else {
		t.Logf("%d requests", n)
	}
	f.writes()
	install()
	if w := f.writes(); len(w) > 0 {
		t.Errorf("the second time writes %v", w)
	}
}

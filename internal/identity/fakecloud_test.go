// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// The same steps as with the fake of this package, against the fakes of keystone, region and yunionconf, which were written independently from
// measurements of the real services.
func TestAgainstFakeCloud(t *testing.T) {
	const password = "Admin@123"
	cloud := fakecloudtest.New(t, mariadb.Require(t, mariadb.Options{}))
	options := cloud.Keystone(password)
	cloud.Start("keystone", "--config", cloud.Config("keystone", options, map[string]any{"auto_sync_table": true})).Listening(t, options["port"].(int))

	c, err := identity.New(identity.Options{AuthURL: cloud.AuthURL(), Username: "sysadmin", Password: password, CAPEM: cloud.CA.CertPEM()})
	require.NoError(t, err)
	defer c.Close()
	ctx := t.Context()
	must := func(changed bool, err error) bool {
		t.Helper()
		require.NoError(t, err)
		return changed
	}
	if _, err := c.Snapshot(ctx); !identity.IsForbidden(err) {
		t.Fatalf("fresh: %v", err)
	}
	policy := identity.Policy{Name: "sysadmin", Scope: "system", Blob: map[string]any{"policy": map[string]any{"*": "allow"}}}
	must(c.EnsurePolicy(ctx, policy))
	must(c.EnsureRolePolicy(ctx, "admin", "system", "sysadmin"))
	var s *identity.Snapshot
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if s, err = c.Snapshot(ctx); err == nil {
			break
		}
		if !identity.IsForbidden(err) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	ensure := func(s *identity.Snapshot) map[string]bool {
		t.Helper()
		did := map[string]bool{}
		did["policy"] = must(c.EnsurePolicy(ctx, policy))
		did["binding"] = must(c.EnsureRolePolicy(ctx, "admin", "system", "sysadmin"))
		did["region"] = must(c.EnsureRegion(ctx, s, "region0"))
		id, changed, err := c.EnsureService(ctx, s, "glance", "image")
		did["service"] = must(changed, err)
		did["endpoint"] = must(c.EnsureEndpoint(ctx, s, identity.Endpoint{ServiceID: id, RegionID: "region0", Interface: "public", URL: "https://x", Enabled: true}))
		user, changed, err := c.EnsureUser(ctx, s, "glance", "pw-one")
		did["user"] = must(changed, err)
		did["role"] = must(c.EnsureUserRole(ctx, s, user, "system", "admin"))
		_, changed, err = c.EnsureService(ctx, s, "common", "common")
		did["common"] = must(changed, err)
		did["config"] = must(c.EnsureServiceConfig(ctx, "common", map[string]any{"api_server": "https://lb"}))
		return did
	}
	first := ensure(s)
	for what, changed := range first {
		if changed == (what == "policy" || what == "binding") {
			t.Errorf("first time, %s: changed %v", what, changed)
		}
	}
	again, err := c.Snapshot(ctx)
	require.NoError(t, err)
	for what, changed := range ensure(again) {
		if changed {
			t.Errorf("second time, %s changed", what)
		}
	}

	if err := c.CheckLogin(ctx, "glance", "pw-one", "system"); err != nil {
		t.Errorf("the account does not work: %v", err)
	}
	if _, changed, err := c.EnsureUser(ctx, again, "glance", "pw-two"); !changed || err != nil {
		t.Errorf("new password: %v, %v", changed, err)
	}
	if err := c.CheckLogin(ctx, "glance", "pw-one", "system"); !identity.IsUnauthorized(err) {
		t.Errorf("the old password: %v", err)
	}
	if !must(c.EnsureEndpoint(ctx, again, identity.Endpoint{ServiceID: "glance", RegionID: "region0", Interface: "public", URL: "https://y", Enabled: true})) ||
		!must(c.DisableEndpoints(ctx, again, "glance", "region0")) || !must(c.AllowWebConsole(ctx, "glance")) || must(c.AllowWebConsole(ctx, "glance")) {
		t.Error("a change was not seen as one, or seen twice")
	}
	got, err := c.ListEndpoints(ctx)
	if err != nil || len(got) != 1 || got[0].URL != "https://y" || got[0].Enabled {
		t.Errorf("%+v, %v", got, err)
	}
	standardPolicies(t, c)
	topology(t, cloud, c, again)
}

// standardPolicies creates every standard policy and role of a cloud, twice; the second run creates nothing.
func standardPolicies(t *testing.T, c *identity.Client) {
	table, err := policy.Standard()
	require.NoError(t, err)
	var want identity.Standard
	for _, p := range table.Policies {
		want.Policies = append(want.Policies, identity.Policy{Name: p.Name, Scope: p.Scope, Blob: p.Rules})
	}
	for _, r := range table.Roles {
		want.Roles = append(want.Roles, identity.Role{Name: r.Name, Public: r.Public, Policies: r.Policies, Project: r.Project})
	}
	for _, first := range []bool{true, false} {
		began := time.Now()
		changed, err := c.EnsureStandard(t.Context(), want)
		if err != nil || changed != first {
			t.Fatalf("standard policies: changed %v, want %v, %v", changed, first, err)
		}
		t.Logf("standard policies, changed %v: %s", changed, time.Since(began).Round(time.Millisecond))
	}
}

// topology starts region and yunionconf and creates their first records.
func topology(t *testing.T, cloud *fakecloudtest.Cloud, c *identity.Client, s *identity.Snapshot) {
	ctx := t.Context()
	check := func(changed bool, err error) bool {
		t.Helper()
		require.NoError(t, err)
		return changed
	}
	for _, svc := range [][4]string{{"region", "region2", "compute_v2", "regionadmin"}, {"yunionconf", "yunionconf", "yunionconf", "yunionconf"}} {
		id, changed, err := c.EnsureService(ctx, s, svc[1], svc[2])
		check(changed, err)
		port := fakecloudtest.FreePort(t)
		base := "https://localhost:" + strconv.Itoa(port)
		check(c.EnsureEndpoint(ctx, s, identity.Endpoint{ServiceID: id, RegionID: "region0", Interface: "internal", URL: base, Enabled: true}))
		user, changed, err := c.EnsureUser(ctx, s, svc[3], "pw-one")
		check(changed, err)
		check(c.EnsureUserRole(ctx, s, user, "system", "admin"))
		if svc[0] == "yunionconf" {
			_, changed, err := c.EnsureService(ctx, s, "yunionagent", "yunionagent")
			check(changed, err)
		}
		groups := cloud.Account(svc[3], "pw-one")
		maps.Copy(groups, cloud.Certificate(svc[0]))
		maps.Copy(groups, map[string]any{"port": port, "auto_sync_table": true, "sql_connection": cloud.Database(svc[0], "pw")})
		cloud.Start(svc[0], "--config", cloud.Config(svc[0], groups)).Listening(t, port)
		if err := c.Ping(ctx, base); err != nil {
			t.Error(err)
		}
		for round, want := range []bool{true, false} {
			for what, changed := range records(t, c, svc[0], base, check) {
				if changed != want {
					t.Errorf("round %d, %s: changed %v", round, what, changed)
				}
			}
		}
	}
}

func records(t *testing.T, c *identity.Client, service, base string, check func(bool, error) bool) map[string]bool {
	ctx, did := t.Context(), map[string]bool{}
	note := func(what string) func(string, bool, error) {
		return func(_ string, changed bool, err error) { did[what] = check(changed, err) }
	}
	if service == "yunionconf" {
		did["parameter"] = check(c.Parameters(base).Ensure(ctx, "global-settings", "yunionagent", func(map[string]any) map[string]any {
			return map[string]any{"setupKeys": []string{"onecloud"}, "n": 1}
		}))
		return did
	}
	m, zones := c.Records(base), identity.Kind{Plural: "zones", Singular: "zone"}
	note("zone")(m.Ensure(ctx, zones, "zone0", nil))
	note("wire")(m.In(zones, "zone0").Ensure(ctx, identity.Kind{Plural: "wires", Singular: "wire"}, "bcast0", map[string]any{"bandwidth": 1000, "vpc": "default"}))
	note("schedtag")(m.Ensure(ctx, identity.Kind{Plural: "schedtags", Singular: "schedtag"}, "same_project", map[string]any{"default_strategy": "prefer"}))
	note("dynamic")(m.Ensure(ctx, identity.Kind{Plural: "dynamicschedtags", Singular: "dynamicschedtag"}, "d", map[string]any{
		"schedtag": "same_project", "condition": "a == b", "enabled": true,
	}))
	return did
}

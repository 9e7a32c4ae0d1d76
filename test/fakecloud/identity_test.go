// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// TestIdentityClient runs the operator's own client against a fresh stand-in, twice. The second run changes nothing.
func TestIdentityClient(t *testing.T) {
	c := fakecloudtest.New(t, mariadb.Require(t, mariadb.Options{}))
	options := c.Keystone(adminPassword)
	c.Start("keystone", "--auto-sync-table", "--config", c.Config("keystone", options)).Listening(t, options["port"].(int))
	client, err := identity.New(identity.Options{AuthURL: c.AuthURL(), Username: "sysadmin", Password: adminPassword, CAPEM: c.CA.CertPEM()})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	ctx := t.Context()
	if err := client.Ping(ctx, fmt.Sprintf("https://localhost:%d", options["port"])); err != nil {
		t.Error(err)
	}
	if _, err := client.Snapshot(ctx); !identity.IsForbidden(err) {
		t.Fatalf("a fresh keystone shows its catalogue: %v", err)
	}
	for round, want := range []bool{true, false} {
		blob := map[string]any{"policy": map[string]any{"*": "allow"}}
		changed, err := client.EnsurePolicy(ctx, identity.Policy{Name: "sysadmin", Scope: "system", Blob: blob})
		expect(t, "policy", changed, want, err)
		changed, err = client.EnsureRolePolicy(ctx, "admin", "system", "sysadmin")
		expect(t, "role policy", changed, want, err)
		var s *identity.Snapshot
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			s, err = client.Snapshot(ctx)
			if identity.IsForbidden(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		ensureCatalogue(t, client, s, want)
	}
	// A disabled account cannot log in, whatever the password, and a token that is not valid gives no rights.
	r := newREST(t, c)
	r.login(c.AuthURL(), "sysadmin", adminPassword)
	r.want(http.StatusOK, http.MethodPatch, c.AuthURL()+"/users/regionadmin", `{"user":{"enabled":false}}`)
	for _, password := range []string{"pw-two", "wrong"} {
		if got := newREST(t, c).login(c.AuthURL(), "regionadmin", password); got != http.StatusLocked {
			t.Errorf("password %s: %d", password, got)
		}
	}
	s, err := client.Snapshot(ctx)
	require.NoError(t, err)
	_, changed, err := client.EnsureUser(ctx, s, "regionadmin", "pw-three")
	expect(t, "disabled account", changed, true, err)
	if err := client.CheckLogin(ctx, "regionadmin", "pw-three", "system"); err != nil {
		t.Error(err)
	}
	r.token = "gAAAAAwrong"
	r.want(http.StatusForbidden, http.MethodGet, c.AuthURL()+"/services", "")
}

func ensureCatalogue(t *testing.T, client *identity.Client, s *identity.Snapshot, want bool) {
	t.Helper()
	ctx := t.Context()
	changed, err := client.EnsureRegion(ctx, s, "region0")
	expect(t, "region", changed, want, err)
	id, changed, err := client.EnsureService(ctx, s, "region2", "compute_v2")
	expect(t, "service", changed, want, err)
	endpoint := identity.Endpoint{ServiceID: id, RegionID: "region0", Interface: "internal", URL: "https://default-region:30888", Enabled: true}
	changed, err = client.EnsureEndpoint(ctx, s, endpoint)
	expect(t, "endpoint", changed, want, err)
	_, _, err = client.EnsureService(ctx, s, "common", "common")
	expect(t, "common", false, false, err)
	changed, err = client.EnsureServiceConfig(ctx, "common", map[string]any{"api_server": "https://lb"})
	expect(t, "service config", changed, want, err)
	_, changed, err = client.EnsureUser(ctx, s, "regionadmin", "pw-one")
	expect(t, "user", changed, want, err)
	changed, err = client.EnsureUserRole(ctx, s, "regionadmin", "system", "admin")
	expect(t, "role", changed, want, err)
	if err := client.CheckLogin(ctx, "regionadmin", "pw-one", "system"); err != nil {
		t.Error(err)
	}
	if want {
		return
	}
	endpoint.URL = "https://moved:30888"
	changed, err = client.EnsureEndpoint(ctx, s, endpoint)
	expect(t, "moved endpoint", changed, true, err)
	_, changed, err = client.EnsureUser(ctx, s, "regionadmin", "pw-two")
	expect(t, "changed password", changed, true, err)
	if err := client.CheckLogin(ctx, "regionadmin", "pw-one", "system"); !identity.IsUnauthorized(err) {
		t.Errorf("the old password still works: %v", err)
	}
}

func expect(t *testing.T, what string, changed, want bool, err error) {
	t.Helper()
	if err != nil || changed != want {
		t.Errorf("%s: changed %t, want %t, %v", what, changed, want, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/fakecloud/program"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// testReleases moves a service through working and broken releases.
func testReleases(t *testing.T, c *fakecloudtest.Cloud, r *rest) {
	r = r.in(t)
	port := fakecloudtest.FreePort(t)
	base := fmt.Sprintf("https://localhost:%d", port)
	r.register(c.AuthURL(), "notify", "notify", base)
	r.account(c.AuthURL(), "notify-user", "pw-notify")
	conf := c.Config("notify", c.Certificate("notify"), c.Account("notify-user", "pw-notify"), map[string]any{
		"sql_connection": c.Database("notify", "notify-pw"), "port": port,
	})
	start := func(version string, args ...string) *fakecloudtest.Process {
		return c.StartEnv([]string{servicespec.VersionVariable + "=" + version}, "notify", append([]string{"--config", conf}, args...)...)
	}
	initial := []string{"--auto-sync-table", "--exit-after-db-init"}
	ends := func(p *fakecloudtest.Process, code int, text string) {
		t.Helper()
		if got := p.Wait(); got != code || !strings.Contains(p.Output(), text) {
			t.Errorf("exit %d, want %d with %q:\n%s", got, code, text, p.Output())
		}
	}
	ends(start("v4.0.2", initial...), 0, "Exit after database initialized")
	ends(start("v4.0.3"), 1, "database schema not in sync!")

	ends(start("v4.0.3"+string(program.InMigration), initial...), 1, "killed in the middle of the migration")
	ends(start("v4.0.3"+string(program.InMigration), initial...), 1, "killed in the middle of the migration")
	ends(start("v4.0.3"+string(program.AtStart), initial...), 0, "Exit after database initialized")
	ends(start("v4.0.3"+string(program.AtStart)), 1, "broken on purpose: it ends at start")
	ends(start("v4.0.3"+string(program.WhenReady)).Listening(t, port), 1, "after it was ready")

	loaded := start("v4.0.3"+string(program.UnderLoad)).Listening(t, port)
	for range 40 { // the connection may break at any time
		response, err := r.http.Get(base + "/records")
		if err != nil {
			break
		}
		_ = response.Body.Close()
	}
	ends(loaded, 1, "broken on purpose: it ends after")

	ends(start("v4.0.2"), 1, "database schema not in sync!")
	good := start("v4.0.3").Listening(t, port)
	r.want(http.StatusOK, http.MethodGet, base+"/records", "")
	if code := good.Stop(); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	ends(start("v4.0.2", initial...), 0, "Exit after database initialized")
	start("v4.0.2").Listening(t, port)
}

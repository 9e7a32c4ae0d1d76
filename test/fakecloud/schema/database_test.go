// SPDX-License-Identifier: Apache-2.0

package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/test/fakecloud/schema"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// open creates an empty database.
func open(t *testing.T, server *mariadb.Server, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root:%s@tcp(%s)/?interpolateParams=true", server.RootPassword, server.Addr()))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	for _, s := range []string{"CREATE DATABASE " + name, "USE " + name} {
		exec(t, db, s)
	}
	return db
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var s sql.NullString
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&s))
	return s.String
}

func TestMigrate(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	t.Run("up and back", func(t *testing.T) { upAndBack(t, open(t, server, "up")) })
	t.Run("longer values", func(t *testing.T) { longer(t, open(t, server, "longer")) })
	t.Run("half-way", func(t *testing.T) { halfway(t, open(t, server, "half")) })
	t.Run("refused", func(t *testing.T) { refused(t, open(t, server, "refused")) })
}

// to migrates a database to a release, twice. The second run finds nothing to do.
func to(t *testing.T, db *sql.DB, release string) {
	t.Helper()
	for range 2 {
		if err := schema.Migrate(t.Context(), db, "region", release, false); err != nil {
			t.Fatalf("%s: %v", release, err)
		}
		if err := schema.Check(t.Context(), db, schema.Tables("region", release)); err != nil {
			t.Fatalf("%s: %v", release, err)
		}
	}
}

func upAndBack(t *testing.T, db *sql.DB) {
	for _, release := range []string{"v3.9.1", "v3.10.5", "v3.11.9", "v4.0.2", "v4.0.3", "v4.0.4"} {
		to(t, db, release)
		if got := text(t, db, "SELECT GROUP_CONCAT(CONCAT(id, name, external_id, ip_addr) ORDER BY id) FROM region_resources_tbl"); got !=
			"region-1firstext-110.0.0.1,region-2secondext-210.0.0.2,region-3thirdext-310.0.0.3" {
			t.Errorf("%s: %s", release, got)
		}
	}
	if got := text(t, db, "SELECT SUM(rx_bytes) FROM region_resources_tbl"); got != "6000" {
		t.Errorf("renamed column: %s", got)
	}
	if got := text(t, db, "SELECT GROUP_CONCAT(CONCAT(id, guest_id) ORDER BY id) FROM guest_isolated_devices_tbl"); got != "device-1region-1,device-2region-2" {
		t.Errorf("moved devices: %s", got)
	}
	exec(t, db, "INSERT INTO region_resources_tbl (id, name, project_src) VALUES ('new', 'new', 'x')")
	exec(t, db, "DELETE FROM region_resources_tbl WHERE id = 'new'") // it has no ip_addr, which 3.11 requires
	to(t, db, "v3.11.9")
	if got := text(t, db, "SELECT CONCAT(COUNT(rx_traffic_used), ' ', SUM(rx_bytes)) FROM region_resources_tbl"); got != "0 6000" {
		t.Errorf("old name after the way back: %s, want it empty and the new one as it was", got)
	}
	if got := text(t, db, "SELECT COUNT(guest_id) FROM isolated_devices_tbl"); got != "0" {
		t.Errorf("%s devices in the old column", got)
	}
	exec(t, db, "INSERT INTO region_resources_tbl (id, name, ip_addr) VALUES ('old', 'inserted by older code', '10.0.0.4')")
}

func longer(t *testing.T, db *sql.DB) {
	to(t, db, "v4.0.3")
	exec(t, db, "UPDATE region_resources_tbl SET ip_addr = 'fd00:0:0:1:2:3:4:5:6' WHERE id = 'region-1'")
	err := schema.Migrate(t.Context(), db, "region", "v3.11.9", false)
	if err == nil || !strings.Contains(err.Error(), "Data too long") {
		t.Errorf("narrowing over a longer value: %v", err)
	}
}

func halfway(t *testing.T, db *sql.DB) {
	to(t, db, "v4.0.2")
	for range 5 { // a restarted container does not succeed by chance
		if err := schema.Migrate(t.Context(), db, "region", "v4.0.3", true); err == nil || !strings.Contains(err.Error(), "in the middle") {
			t.Fatalf("half-way: %v", err)
		}
	}
	if got := text(t, db, "SELECT SUM(rx_bytes) FROM region_resources_tbl"); got != "6000" {
		t.Error("nothing was changed")
	}
	if err := schema.Check(context.WithoutCancel(t.Context()), db, schema.Tables("region", "v4.0.3")); !errors.Is(err, schema.ErrDiffers) {
		t.Errorf("everything was changed: %v", err)
	}
	to(t, db, "v4.0.3")
}

// refused checks that a service that may not change its tables does not start with those of another release.
func refused(t *testing.T, db *sql.DB) {
	to(t, db, "v4.0.2")
	for _, release := range []string{"v3.11.9", "v4.0.3"} {
		if err := schema.Check(t.Context(), db, schema.Expected(release)); !errors.Is(err, schema.ErrDiffers) {
			t.Errorf("%s in front of the tables of v4.0.2: %v", release, err)
		}
	}
}

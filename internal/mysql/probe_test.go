// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

func leftovers(t *testing.T, a *Admin) []string {
	t.Helper()
	out, err := strings1(t.Context(), a.cfg, a.db, `SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE 'ocadm\_probe\_%'
		UNION ALL SELECT CONCAT(User, '@', Host) FROM mysql.user WHERE User LIKE 'ocadm\_probe\_%'`)
	require.NoError(t, err)
	return out
}

func TestProbe(t *testing.T) {
	a := open(t, root(t))
	// Leftovers of an interrupted probe, and those of a running one.
	run(t, a, "CREATE DATABASE ocadm_probe_dead", "CREATE USER ocadm_probe_dead@`%`", "CREATE DATABASE ocadm_probe_live")
	conn, err := a.db.Conn(t.Context())
	require.NoError(t, err)
	if _, err := conn.ExecContext(t.Context(), "DO GET_LOCK('ocadm_probe_live', 0)"); err != nil {
		t.Fatal(err)
	}
	verbs := map[string]int{}
	cfg := root(t)
	cfg.OnStatement = func(v string) { verbs[v]++ }
	if _, err := Probe(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if verbs["CREATE DATABASE"] != 1 || verbs["CREATE USER"] == 0 || verbs["CREATE TABLE"] != 2 { // one of them is by the new user
		t.Errorf("sent %v", verbs)
	}
	if got := leftovers(t, a); !slices.Equal(got, []string{"ocadm_probe_live"}) {
		t.Errorf("left: %v", got)
	}
	_ = conn.Close()
	run(t, a, "DO RELEASE_ALL_LOCKS()", "DROP DATABASE ocadm_probe_live")
}

func TestProbeFindsMissingPrivileges(t *testing.T) {
	a := open(t, root(t))
	for i, tc := range []struct {
		name    string
		grants  []string
		class   Class
		inspect bool
	}{
		{"nothing", []string{"GRANT USAGE ON *.* TO %s"}, NoCreate, false},
		{"databases only", []string{"GRANT CREATE, DROP, ALTER ON *.* TO %s"}, NoCreateUser, false},
		{"no grant option", []string{"GRANT ALL ON *.* TO %s"}, NoGrantOption, false},
		{"grant option", []string{"GRANT ALL ON *.* TO %s WITH GRANT OPTION"}, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			user := fmt.Sprintf("limited%d", i)
			account := "'" + user + "'@'127.%'"
			run(t, a, "CREATE USER "+account+" IDENTIFIED BY '"+canary+"'")
			for _, g := range tc.grants {
				run(t, a, fmt.Sprintf(g, account))
			}
			cfg := root(t)
			cfg.User, cfg.Password = user, canary
			_, err := Probe(t.Context(), cfg)
			if ClassOf(err) != tc.class {
				t.Fatalf("got %v, want %q", err, tc.class)
			}
			if e, ok := errors.AsType[*Error](err); ok {
				want := "GRANT ALL PRIVILEGES ON *.* TO " + account + " WITH GRANT OPTION;"
				if e.Account != account || !strings.Contains(e.Remedy(), want) {
					t.Errorf("account %s, remedy %q", e.Account, e.Remedy())
				}
				// The remedy works.
				run(t, a, want)
				if _, err := Probe(t.Context(), cfg); err != nil {
					t.Errorf("after the remedy: %v", err)
				}
			}
			noCanary(t, err)
			if left := leftovers(t, a); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestProbeFindsForcedKeys(t *testing.T) {
	a := open(t, root(t))
	setting := map[Flavour]string{MariaDB: "innodb_force_primary_key", MySQL: "sql_require_primary_key"}[flavour()]
	run(t, a, "SET GLOBAL "+setting+" = ON")
	t.Cleanup(func() { _, _ = server.Execute(context.Background(), "SET GLOBAL "+setting+" = OFF") })
	_, err := Probe(t.Context(), root(t))
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != NeedsKeys || !strings.Contains(e.Remedy(), "SET GLOBAL "+setting+" = OFF;") {
		t.Errorf("got %v", err)
	}
	if left := leftovers(t, a); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Inspect writes nothing at all, according to the server's own log.
func TestInspectWritesNothing(t *testing.T) {
	cfg := root(t)
	before := statements(t)
	if _, err := Inspect(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range statements(t)[len(before):] {
		if s.Command != "Query" && s.Command != "Execute" {
			continue
		}
		seen++
		verb, _, _ := strings.Cut(s.Text, " ")
		if verb != "SELECT" && verb != "SHOW" && verb != "SET" {
			t.Errorf("sent %q", s.Text)
		}
	}
	if seen == 0 {
		t.Error("the log holds no statement: the test sees nothing")
	}

	a := open(t, cfg)
	run(t, a, "CREATE USER meek@`%` IDENTIFIED BY '"+canary+"'", "GRANT ALL ON x.* TO meek@`%` WITH GRANT OPTION")
	cfg.User, cfg.Password = "meek", canary
	if _, err := Inspect(t.Context(), cfg); ClassOf(err) != NoGrantOption {
		t.Errorf("got %v", err)
	}
}

func statements(t *testing.T) []mariadb.Statement {
	t.Helper()
	s, err := server.Statements()
	require.NoError(t, err)
	return s
}

// A cancelled probe still cleans up.
func TestProbeCancelled(t *testing.T) {
	cfg := root(t)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.OnStatement = func(verb string) {
		if verb == "CREATE USER" {
			cancel()
		}
	}
	if _, err := Probe(ctx, cfg); err == nil {
		t.Fatal("no error")
	}
	if left := leftovers(t, open(t, root(t))); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestApart checks that a member of a cluster that applies changes late is not taken for another server: a copy would drop the databases of both.
func TestApart(t *testing.T) {
	root(t)
	if server.MySQL {
		t.Skip("the statements are MariaDB's")
	}
	source, replica := mariadb.Require(t, mariadb.Options{Args: []string{"--log-bin=b", "--server-id=1"}}), mariadb.Require(t, mariadb.Options{Args: []string{"--server-id=2"}})
	as := func(s *mariadb.Server) *Admin {
		return open(t, Config{Host: s.Host, Port: s.Port, User: "root", Password: s.RootPassword, Owner: Owner{ID: "1", Namespace: "onecloud", Name: "default"}})
	}
	to, other := as(source), as(replica)
	if _, err := to.EnsureDatabase(t.Context(), nil, "glance"); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, to.Apart(t.Context(), as(server)))
	_, err := replica.Execute(t.Context(), fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%d, MASTER_USER='root', MASTER_PASSWORD='%s', MASTER_DELAY=2", source.Host,
		source.Port, source.RootPassword), "START SLAVE")
	require.NoError(t, err)
	if err := to.Apart(t.Context(), other); ClassOf(err) != Refused {
		t.Errorf("members of one cluster: %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// global sets a variable of the server for the connections that a test opens later.
func (e env) global(name, value string) {
	e.Helper()
	was := e.cell("SELECT @@GLOBAL." + name)
	e.run("SET GLOBAL " + name + " = " + value)
	e.Cleanup(func() { _, _ = e.db.Exec("SET GLOBAL " + name + " = " + was) })
}

// anew returns another administrator, whose connections have the settings that the server has now.
func (e env) anew() *mysql.Admin {
	e.Helper()
	a, err := mysql.Open(e.Context(), mysql.Config{Host: server.Host, Port: server.Port, User: "root", Password: server.RootPassword, Patience: time.Minute})
	require.NoError(e, err)
	e.Cleanup(func() { _ = a.Close() })
	return a
}

// copyA copies the tables of database a to copy_a. The objects that depend on them wait for Finish of the loader.
func copyA(t *testing.T, a *mysql.Admin) *Loader {
	t.Helper()
	l, err := NewLoader(t.Context(), a, func(d string) string { return "copy_" + d })
	require.NoError(t, err)
	t.Cleanup(l.Close)
	if _, err := Dump(t.Context(), a, []string{"a"}, func(p Piece) error { return l.Load(t.Context(), clone(p)) }); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLargeRow checks that a row is loaded that is larger than what the driver sends by default, if the server accepts it.
func TestLargeRow(t *testing.T) {
	e := setUp(t)
	e.global("max_allowed_packet", "268435456")
	a := e.anew()
	e.run("CREATE DATABASE a CHARACTER SET utf8mb4", "CREATE TABLE a.t (v LONGTEXT)")
	if _, err := server.Execute(t.Context(), "INSERT INTO a.t VALUES (REPEAT('x', 70 << 20))", "CREATE DATABASE copy_a"); err != nil {
		t.Fatal(err)
	}
	copyA(t, a)
}

// TestCharacterSetOfServer checks that no character is lost if the server ignores the character set that a client names in its greeting.
func TestCharacterSetOfServer(t *testing.T) {
	s, err := mariadb.Start(t.Context(), t.TempDir(), mariadb.Options{Args: []string{"--skip-character-set-client-handshake", "--character-set-server=utf8mb3"}})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Execute(t.Context(), "SET NAMES utf8mb4", "CREATE DATABASE a CHARACTER SET utf8mb4", "CREATE TABLE a.t (v VARCHAR(9))",
		"INSERT INTO a.t VALUES ('😀')", "CREATE DATABASE copy_a CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	a, err := mysql.Open(t.Context(), mysql.Config{Host: s.Host, Port: s.Port, User: "root", Password: s.RootPassword, Patience: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	copyA(t, a)
	if got, err := s.Execute(t.Context(), "SELECT HEX(v) FROM copy_a.t"); err != nil || got != "F09F9880\n" {
		t.Errorf("%q %v", got, err)
	}
}

// TestSettingsOfAnotherServer checks that databases and programs are loaded whose default collation or mode the server does not know: those of MySQL 8 are
// unknown to MariaDB, and the other way round.
func TestSettingsOfAnotherServer(t *testing.T) {
	e := setUp(t)
	e.load("copy_", []Piece{{Database: "a", Kind: Database, Name: "a",
		SQL: []byte("CREATE DATABASE `a` /*!40100 DEFAULT CHARACTER SET latin1 COLLATE latin1_nowhere_ci */ /*!80016 DEFAULT ENCRYPTION='N' */")},
		{Database: "a", Kind: Routine, Name: "p", Setup: []string{"SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_AUTO_CREATE_USER'",
			"SET SESSION collation_connection = 'utf8mb4_nowhere_ci'"}, SQL: []byte("CREATE PROCEDURE p() SELECT 'a'")}})
	if got := e.cell("SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'copy_a'"); got != "latin1" {
		t.Error(got)
	}
}

// TestConnectionSettings checks that every row is copied, whatever the server sets for its connections.
func TestConnectionSettings(t *testing.T) {
	for name, value := range map[string]string{"sql_select_limit": "1", "max_join_size": "1", "autocommit": "0"} {
		t.Run(name, func(t *testing.T) {
			e := setUp(t)
			e.run("CREATE DATABASE a", "CREATE TABLE a.t (id INT PRIMARY KEY)", "INSERT INTO a.t VALUES (1), (2), (3)", "CREATE DATABASE copy_a")
			e.global(name, value)
			copyA(t, e.anew())
			if n := e.cell("SELECT COUNT(*) FROM copy_a.t"); n != "3" {
				t.Errorf("%s rows", n)
			}
		})
	}
}

// TestRefusedNow checks that tables and rows are copied that the server has, but would refuse or change if they were created now.
func TestRefusedNow(t *testing.T) {
	e := setUp(t)
	wide := "CREATE TABLE a.wide (id INT"
	for i := range 200 {
		wide += fmt.Sprintf(", c%d VARCHAR(255)", i)
	}
	e.run("CREATE DATABASE a", "SET SESSION innodb_strict_mode = OFF", wide+") CHARACTER SET latin1 ROW_FORMAT=COMPACT", "CREATE TABLE a.t (v INT)", "INSERT INTO a.t VALUES (1), (1)")
	if server.MySQL {
		e.global("sql_require_primary_key", "ON")
		e.global("sql_generate_invisible_primary_key", "ON")
	} else {
		e.run("SET SESSION check_constraint_checks = OFF", "CREATE TABLE a.c (v INT CHECK (v > 0))", "INSERT INTO a.c VALUES (-1)")
	}
	e.same("copy_", e.copied("copy_", "a"))
}

// TestTimestampWithoutDefault checks that a copy of a TIMESTAMP column without default gets none, and no ON UPDATE, from a server that adds both.
func TestTimestampWithoutDefault(t *testing.T) {
	e := setUp(t)
	e.global("explicit_defaults_for_timestamp", "OFF")
	e.admin = e.anew()
	e.run("CREATE DATABASE a CHARACTER SET utf8mb4", "SET SESSION explicit_defaults_for_timestamp = ON", "CREATE TABLE a.t (id INT PRIMARY KEY, at TIMESTAMP NOT NULL)")
	e.same("copy_", e.copied("copy_", "a"))
}

// TestNeverBlockedWithBinaryLog is TestNeverBlocked on a server with a binary log.
func TestNeverBlockedWithBinaryLog(t *testing.T) {
	with, was := mariadb.Require(t, mariadb.Options{Args: []string{"--log-bin=x"}}), server
	defer func() { server = was }()
	server = with
	TestNeverBlocked(t)
}

// TestSlowReader checks that a dump survives a destination that stops for longer than the server waits, such as an object store that does not answer.
func TestSlowReader(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE a CHARACTER SET utf8mb4", "CREATE TABLE a.big (id INT PRIMARY KEY, t LONGTEXT)",
		"INSERT INTO a.big VALUES (1, REPEAT('x', 1 << 20))")
	for range 6 {
		e.run("INSERT INTO a.big SELECT (SELECT MAX(id) FROM a.big) + id, t FROM a.big")
	}
	limits := []string{"net_write_timeout", "max_statement_time", "idle_transaction_timeout"}
	if server.MySQL {
		limits = []string{"net_write_timeout", "max_execution_time"}
	}
	for _, limit := range limits {
		t.Run(limit, func(t *testing.T) {
			e.T = t
			e.global(limit, "1")
			slept := map[Kind]bool{}
			sum, err := Dump(t.Context(), e.anew(), []string{"a"}, func(p Piece) error {
				if !slept[p.Kind] {
					slept[p.Kind] = true
					time.Sleep(3 * time.Second)
				}
				return nil
			})
			if err != nil || sum.Databases[0].Tables[0].Rows != 64 {
				t.Errorf("%+v %v", sum, err)
			}
		})
	}
}

// TestIdleLoader checks that a loader may wait for longer than the server lets other connections wait: a copy is compared before its views exist.
func TestIdleLoader(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE a CHARACTER SET utf8mb4", "CREATE TABLE a.t (id INT PRIMARY KEY)", "CREATE VIEW a.v AS SELECT id FROM a.t", "CREATE DATABASE copy_a")
	e.global("wait_timeout", "1")
	a := e.anew()
	l := copyA(t, a)
	time.Sleep(3 * time.Second)
	if err := l.Finish(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDefaultFromSequence checks that a table whose default is a sequence can be created without the original, and counts with its own one.
func TestDefaultFromSequence(t *testing.T) {
	e := setUp(t)
	if server.MySQL {
		t.Skip("MySQL has no sequences")
	}
	e.run("CREATE DATABASE a CHARACTER SET utf8mb4", "CREATE SEQUENCE a.s", "CREATE TABLE a.t (id BIGINT PRIMARY KEY DEFAULT NEXT VALUE FOR a.s, v INT)",
		"INSERT INTO a.t (v) VALUES (1), (2)")
	e.copied("copy_", "a")
	e.run("DROP DATABASE a", "INSERT INTO copy_a.t (v) VALUES (3)")
	if got := e.cell("SELECT COUNT(*) FROM copy_a.t"); got != "3" {
		t.Error(got)
	}
}

// TestTableDroppedMeanwhile checks that a table that goes while the definitions are read counts as a change, after which a dump starts over.
func TestTableDroppedMeanwhile(t *testing.T) {
	e := setUp(t)
	e.run("CREATE DATABASE a CHARACTER SET utf8mb4")
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		for ctx.Err() == nil {
			_, _ = e.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS a.t (id INT PRIMARY KEY)")
			_, _ = e.db.ExecContext(ctx, "DROP TABLE IF EXISTS a.t")
		}
	})
	defer busy.Wait()
	defer stop()
	gone := 0
	for began := time.Now(); gone < 3 && time.Since(began) < 10*time.Second; {
		_, err := Definitions(t.Context(), e.admin, []string{"a"})
		if err == nil {
			continue
		}
		if gone++; !errors.Is(err, ErrSchemaChanged) {
			t.Fatal(err)
		}
	}
}

// A table that keeps its history would be copied without it, and the comparison would not notice.
func TestHistoryIsNotLostSilently(t *testing.T) {
	e := setUp(t)
	if e.admin.ServerInfo().Flavour != mysql.MariaDB {
		t.Skip("only MariaDB has such tables")
	}
	e.run("CREATE DATABASE a", "CREATE TABLE a.t (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
	if _, err := Definitions(t.Context(), e.admin, []string{"a"}); err == nil || !strings.Contains(err.Error(), "WITH SYSTEM VERSIONING") {
		t.Errorf("%v", err)
	}
}

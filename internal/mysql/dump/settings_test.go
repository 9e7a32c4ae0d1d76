// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/mariadb"
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
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = a.Close() })
	return a
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
	l, err := NewLoader(t.Context(), a, func(d string) string { return "copy_" + d })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Dump(t.Context(), a, []string{"a"}, func(p Piece) error { return l.Load(t.Context(), clone(p)) }); err != nil {
		t.Error(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	l, err := NewLoader(t.Context(), a, func(d string) string { return "copy_" + d })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Dump(t.Context(), a, []string{"a"}, func(p Piece) error { return l.Load(t.Context(), clone(p)) }); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Execute(t.Context(), "SELECT HEX(v) FROM copy_a.t"); err != nil || got != "F09F9880\n" {
		t.Errorf("%q %v", got, err)
	}
}


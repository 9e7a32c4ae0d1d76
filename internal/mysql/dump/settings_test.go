// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
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


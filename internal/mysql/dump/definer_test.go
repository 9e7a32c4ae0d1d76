// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"database/sql"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/require"
)

// limited returns the test environment with an administrator that may not set other definers, as on servers that a provider manages, and a connection
// of a service that has all privileges on its database and on copies of it.
func limited(t *testing.T) (e env, service *sql.DB) {
	t.Helper()
	e = setUp(t)
	e.run("CREATE DATABASE glance", "CREATE TABLE glance.a (id INT PRIMARY KEY, v TEXT)", "CREATE DATABASE keystone", "CREATE TABLE keystone.user (password TEXT)",
		"INSERT INTO keystone.user VALUES ('S3cret')", "CREATE USER glance@'%' IDENTIFIED BY 'pw'", "CREATE USER ops@'%' IDENTIFIED BY 'pw'",
		"GRANT ALL ON `%glance`.* TO glance@'%'",
		"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, TRIGGER, "+
			"EVENT, LOCK TABLES, CREATE USER, RELOAD, PROCESS ON *.* TO ops@'%' WITH GRANT OPTION")
	a, err := mysql.Open(t.Context(), mysql.Config{Host: server.Host, Port: server.Port, User: "ops", Password: "pw"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	e.admin = a
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd = "tcp", server.Addr(), "glance", "pw"
	conn, err := driver.NewConnector(c)
	require.NoError(t, err)
	service = sql.OpenDB(conn)
	t.Cleanup(func() { _ = service.Close() })
	return e, service
}

// A copy of what a service has written does not run with the privileges of the administrator who copied it.
func TestProgramsOfAService(t *testing.T) {
	for kind, s := range map[string]string{
		"routine": "CREATE PROCEDURE glance.p() SELECT password FROM keystone.user",
		"trigger": "CREATE TRIGGER glance.t BEFORE INSERT ON glance.a FOR EACH ROW SET NEW.v = (SELECT password FROM keystone.user)",
		"event":   "CREATE EVENT glance.e ON SCHEDULE EVERY 1 SECOND DO INSERT INTO glance.a SELECT 1, password FROM keystone.user",
	} {
		e, service := limited(t)
		if _, err := service.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		l, err := NewLoader(t.Context(), e.admin, func(db string) string { return "copy_" + db })
		require.NoError(t, err)
		e.run("CREATE DATABASE copy_glance")
		if _, err := Dump(t.Context(), e.admin, []string{"glance"}, func(p Piece) error { return l.Load(t.Context(), clone(p)) }); err != nil {
			t.Fatal(err)
		}
		if err := l.Finish(t.Context()); err == nil || !strings.Contains(err.Error(), "creating the "+kind) || !strings.Contains(err.Error(), "privilege") {
			t.Errorf("%s: %v", kind, err)
		}
		l.Close()
		var got string
		if err := service.QueryRowContext(t.Context(), "CALL copy_glance.p()").Scan(&got); kind == "routine" && err == nil {
			t.Errorf("the service has read %s", got)
		}
	}
}

// A view of a service runs as the account that uses it, and an administrator's program as the administrator who copied it.
func TestViewsAndOthersPrograms(t *testing.T) {
	e, service := limited(t)
	e.run("INSERT INTO glance.a VALUES (1, 'x')", "CREATE PROCEDURE glance.count() SELECT COUNT(*) FROM a")
	for _, s := range []string{"CREATE VIEW glance.v AS SELECT v FROM glance.a", "CREATE SQL SECURITY INVOKER VIEW glance.w AS SELECT v FROM glance.a"} {
		if _, err := service.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	e.copied("copy_", "glance")
	for s, want := range map[string]string{"SELECT v FROM copy_glance.v": "x", "SELECT v FROM copy_glance.w": "x", "CALL copy_glance.count()": "1"} {
		var got string
		if err := service.QueryRowContext(t.Context(), s).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v", s, got, err)
		}
	}
	if n := e.cell("SELECT COUNT(*) FROM information_schema.VIEWS WHERE TABLE_SCHEMA = 'copy_glance' AND SECURITY_TYPE <> 'INVOKER'"); n != "0" {
		t.Errorf("%s views run as the administrator", n)
	}
}

// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

var server *mariadb.Server

func TestMain(m *testing.M) {
	os.Exit(mariadb.Main(context.Background(), mariadb.Options{GeneralLog: true}, func(s *mariadb.Server) int {
		server = s
		return m.Run()
	}))
}

func flavour() Flavour {
	if server.MySQL {
		return MySQL
	}
	return MariaDB
}

// user is the test that currently uses the server.
var user string

// root returns the server's administrator. It empties the server for each test, so that tests can be repeated.
func root(t *testing.T) Config {
	t.Helper()
	if server == nil {
		t.Skip(mariadb.ErrNotInstalled)
	}
	if name, _, _ := strings.Cut(t.Name(), "/"); user != name {
		user = name
		t.Cleanup(func() { user = "" })
		require.NoError(t, server.Wipe(t.Context()))
	}
	return Config{Host: server.Host, Port: server.Port, User: "root", Password: server.RootPassword, Owner: Owner{ID: "1", Namespace: "onecloud", Name: "default"}}
}

func open(t *testing.T, cfg Config) *Admin {
	t.Helper()
	a, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// counted opens an Admin that counts its statements by verb.
func counted(t *testing.T) (*Admin, map[string]int) {
	verbs := map[string]int{}
	cfg := root(t)
	cfg.OnStatement = func(v string) { verbs[v]++ }
	a := open(t, cfg)
	clear(verbs)
	return a, verbs
}

func run(t *testing.T, a *Admin, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := a.db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func writes(verbs map[string]int) []string {
	var out []string
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		if v != "SELECT" && !strings.HasPrefix(v, "SHOW") {
			out = append(out, fmt.Sprintf("%s %d", v, verbs[v]))
		}
	}
	return out
}

func TestOpenReportsTheServer(t *testing.T) {
	i := open(t, root(t)).ServerInfo()
	if i.Flavour != flavour() || i.Major < 8 || i.Account != "'root'@'%'" || i.MaxAllowedPacket == 0 || i.ReadOnly {
		t.Errorf("%+v", i)
	}
}

func TestDatabase(t *testing.T) {
	a, verbs := counted(t)
	for _, name := range []string{"plain", "we`ird-näme_%", `back\slash`} {
		t.Run(name, func(t *testing.T) {
			for _, want := range []bool{true, false} {
				clear(verbs)
				if changed, err := a.EnsureDatabase(t.Context(), nil, name); err != nil || changed != want {
					t.Fatalf("changed %v, %v; want %v", changed, err, want)
				}
				if !want && len(writes(verbs)) > 0 {
					t.Errorf("nothing to do, and sent %v", verbs)
				}
			}
			var charset string
			err := a.db.QueryRow("SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", name).Scan(&charset)
			if err != nil || charset != "utf8mb4" {
				t.Errorf("character set %q, %v", charset, err)
			}
			names, err := a.Databases(t.Context())
			if err != nil || !slices.Contains(names, name) || slices.Contains(names, "mysql") {
				t.Errorf("databases %v, %v", names, err)
			}
			for range 2 {
				if err := a.dropDatabase(t.Context(), name); err != nil {
					t.Fatalf("dropping: %v", err)
				}
				if names, err := a.Databases(t.Context()); err != nil || slices.Contains(names, name) {
					t.Errorf("dropped: %v, %v", names, err)
				}
			}
		})
	}
	for _, name := range []string{"mysql", "SYS", "information_schema", "", "x ", strings.Repeat("x", 65)} {
		clear(verbs)
		if _, err := a.EnsureDatabase(t.Context(), nil, name); ClassOf(err) != Refused {
			t.Errorf("creating %q: %v", name, err)
		}
		if err := a.dropDatabase(t.Context(), name); ClassOf(err) != Refused {
			t.Errorf("dropping %q: %v", name, err)
		}
		if len(verbs) > 0 {
			t.Errorf("%q: sent %v", name, verbs)
		}
	}
}

func TestAccount(t *testing.T) {
	a, verbs := counted(t)
	acc := Account{User: "svc_a", Password: `p'a\s"s/:@%?` + canary, Database: "svc_a_db"}
	other := Account{User: "svc_a", Password: acc.Password + "2", Database: acc.Database}
	if _, err := a.EnsureDatabase(t.Context(), nil, acc.Database); err != nil {
		t.Fatal(err)
	}
	ensure := func(what string, acc Account, want ...string) {
		t.Helper()
		clear(verbs)
		changed, err := a.EnsureAccount(t.Context(), nil, acc)
		if err != nil || changed != (len(want) > 0) {
			t.Fatalf("%s: changed %v, %v", what, changed, err)
		}
		if got := writes(verbs); !slices.Equal(got, want) {
			t.Errorf("%s: sent %v, want %v", what, got, want)
		}
		if err := a.VerifyAccount(t.Context(), acc); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ensure("new", acc, "CREATE USER 1", "GRANT 1", "INSERT 1") // one statement for all hosts
	ensure("again", acc)
	ensure("other password", other, "ALTER USER 1")
	if err := a.VerifyAccount(t.Context(), acc); ClassOf(err) != AccessDenied {
		t.Errorf("the old password: %v", err)
	}
	run(t, a, "DROP USER svc_a@`::1`")
	ensure("a host is missing", other, "CREATE USER 1", "GRANT 1")
	if !server.MySQL { // its hashes have a salt, so that only a login can check a password
		run(t, a, "ALTER USER svc_a@`::1` IDENTIFIED BY 'stale'")
		ensure("a host that this client does not come from has another password", other, "ALTER USER 1")
	}
	run(t, a, "REVOKE ALL ON `svc\\_a\\_db`.* FROM svc_a@`%`")
	ensure("grants revoked", other, "GRANT 1")
	run(t, a, "GRANT SELECT ON `svc\\_a\\_db`.* TO svc_a@`%`", "REVOKE INSERT ON `svc\\_a\\_db`.* FROM svc_a@`%`")
	ensure("grants reduced", other, "GRANT 1")

	users, err := a.Accounts(t.Context())
	if err != nil || !slices.Contains(users, UserHost{"svc_a", "::1"}) {
		t.Errorf("accounts %v, %v", users, err)
	}
	for range 2 {
		if err := a.dropAccount(t.Context(), acc.User); err != nil {
			t.Errorf("dropping: %v", err)
		}
		if users, err := a.Accounts(t.Context()); err != nil || slices.ContainsFunc(users, func(u UserHost) bool { return u.User == acc.User }) {
			t.Errorf("dropped: %v, %v", users, err)
		}
	}
}

// A refusal names the account and what it lacks, but not the password to be set.
func TestNoSecretInRefusals(t *testing.T) {
	a := open(t, root(t))
	run(t, a, "CREATE USER reader@`%` IDENTIFIED BY 'r'", "GRANT SELECT ON *.* TO reader@`%`")
	cfg := root(t)
	cfg.User, cfg.Password = "reader", "r"
	limited := open(t, cfg)
	acc := Account{User: "svc_b", Password: canary, Database: "svc_b"}
	snap, err := a.Snapshot(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.Claim(t.Context(), snap, Want{Account: acc, Databases: []string{acc.Database}}))
	_, err = limited.EnsureAccount(t.Context(), nil, acc)
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != NoCreateUser || e.Account != "'reader'@'%'" {
		t.Errorf("got %v", err)
	}
	noCanary(t, err)
	if _, err := limited.EnsureDatabase(t.Context(), nil, "svc_b"); ClassOf(err) != NoCreate {
		t.Errorf("got %v", err)
	}
	err = a.VerifyAccount(t.Context(), acc)
	if ClassOf(err) != AccessDenied {
		t.Errorf("got %v", err)
	}
	noCanary(t, err)
}

// An account must not see a database whose name matches the name of its own as a pattern.
func TestGrantIsNoPattern(t *testing.T) {
	a := open(t, root(t))
	run(t, a, "CREATE DATABASE logs_a", "CREATE DATABASE logsXa")
	acc := Account{User: "logs", Password: "pw-" + canary, Database: "logs_a"}
	if _, err := a.EnsureAccount(t.Context(), nil, acc); err != nil {
		t.Fatal(err)
	}
	if err := verifyLogin(t.Context(), a.cfg, acc.User, acc.Password, "logs_a", "CREATE TABLE t (id INT)"); err != nil {
		t.Errorf("own database: %v", err)
	}
	if err := verifyLogin(t.Context(), a.cfg, acc.User, acc.Password, "logsXa", "CREATE TABLE t (id INT)"); err == nil {
		t.Error("the account may write to another database")
	}
}

func TestAccountRefuses(t *testing.T) {
	a, verbs := counted(t)
	for _, acc := range []Account{
		{User: "root", Password: "x", Database: "d"},
		{User: "mysql.sys", Password: "x", Database: "d"},
		{User: "", Password: "x", Database: "d"},
		{User: strings.Repeat("u", 33), Password: "x", Database: "d"},
		{User: "u", Password: "", Database: "d"},
		{User: "u", Password: "x", Database: "mysql"},
		{User: "u", Password: "x", Database: ""},
		{User: "u", Password: "x", Database: "d", Hosts: []string{""}},
	} {
		if _, err := a.EnsureAccount(t.Context(), nil, acc); ClassOf(err) != Refused {
			t.Errorf("%+v: %v", acc, err)
		}
	}
	if err := a.dropAccount(t.Context(), "root"); ClassOf(err) != Refused {
		t.Errorf("dropping root: %v", err)
	}
	if len(verbs) > 0 {
		t.Errorf("sent %v", verbs)
	}
}

func TestConnectingFails(t *testing.T) {
	good := root(t)
	from := func(ip string) func(context.Context, string, string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		return d.DialContext
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closedPort := closed.Addr().(*net.TCPAddr).Port
	_ = closed.Close()

	narrow := mariadb.Require(t, mariadb.Options{RootHosts: []string{"127.0.0.1"}, Args: []string{"--read-only"}})
	for _, tc := range []struct {
		name    string
		edit    func(*Config)
		class   Class
		account string
		remedy  string
	}{
		{"wrong password", func(c *Config) { c.Password = canary }, AccessDenied, "'root'@'127.0.0.1'", "ALTER USER 'root'@'%'"},
		{"unknown user", func(c *Config) { c.User, c.Password = "nobody", canary }, AccessDenied, "'nobody'@'127.0.0.1'",
			"CREATE USER 'nobody'@'%'"},
		{"host not allowed", func(c *Config) { c.Port, c.Password, c.Dial = narrow.Port, canary, from("127.0.0.9") }, HostNotAllowed,
			"'root'@'127.0.0.9'", "CREATE USER IF NOT EXISTS 'root'@'127.0.0.9' IDENTIFIED BY '<password>';"},
		{"closed port", func(c *Config) { c.Port, c.Password = closedPort, canary }, Unreachable, "", "</dev/tcp/127.0.0.1/"},
		{"no such host", func(c *Config) { c.Host, c.Password = "db.invalid", canary }, Unreachable, "", "db.invalid:"},
		{"Service", func(c *Config) { c.Host, c.Password = "ocadm-mysql.onecloud.svc", canary }, Unreachable, "", "kubectl -n onecloud describe service ocadm-mysql"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := good
			tc.edit(&cfg)
			for how, f := range map[string]func() error{
				"Open":    func() error { _, err := Open(t.Context(), cfg); return err },
				"Probe":   func() error { _, err := Probe(t.Context(), cfg); return err },
				"Inspect": func() error { _, err := Inspect(t.Context(), cfg); return err },
			} {
				err := f()
				e, ok := errors.AsType[*Error](err)
				if !ok || e.Class != tc.class || e.Account != tc.account {
					t.Fatalf("%s: %v (%#v)", how, err, e)
				}
				if !strings.Contains(err.Error(), cfg.Addr()) || !strings.Contains(e.Remedy(), tc.remedy) {
					t.Errorf("%s: %v; remedy %q", how, err, e.Remedy())
				}
				noCanary(t, err)
			}
		})
	}
	t.Run("read only", func(t *testing.T) {
		_, err := Probe(t.Context(), Config{Host: narrow.Host, Port: narrow.Port, User: "root", Password: narrow.RootPassword})
		if ClassOf(err) != ReadOnly {
			t.Error(err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Open(ctx, good); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		_, err = Open(t.Context(), Config{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, User: "root", Password: canary, Timeout: 50 * time.Millisecond})
		if ClassOf(err) != Unreachable {
			t.Error(err)
		}
		noCanary(t, err)
	})
}

// The hook counts exactly what the server's log shows.
func TestHookMatchesTheServersLog(t *testing.T) {
	cfg := root(t)
	var hooked atomic.Int32
	cfg.OnStatement = func(string) { hooked.Add(1) }
	before := mariadb.Count(statements(t))
	a := open(t, cfg)
	if _, err := a.EnsureDatabase(t.Context(), nil, "hooked"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.EnsureAccount(t.Context(), nil, Account{User: "hooked", Password: "x", Database: "hooked"}); err != nil {
		t.Fatal(err)
	}
	if got := mariadb.Count(statements(t)) - before; got != int(hooked.Load()) {
		t.Errorf("the server saw %d statements, the hook %d", got, hooked.Load())
	}
}

func TestOneConnection(t *testing.T) {
	cfg := root(t)
	var connects atomic.Int32
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		connects.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	open(t, cfg)
	if connects.Load() != 1 {
		t.Errorf("%d connections", connects.Load())
	}
}

// A real server reads the quoted literal as the original string.
func TestQuoteStringAgainstServer(t *testing.T) {
	a := open(t, root(t))
	for _, s := range []string{"", "o'neill", `\`, `\'`, "'; DROP TABLE x; --", "\x00\n\r\x1a\t", "\"`", "päß 😀", "%_"} {
		var got sql.NullString
		if err := a.db.QueryRowContext(t.Context(), "SELECT "+QuoteString(s)).Scan(&got); err != nil || got.String != s {
			t.Errorf("%q came back as %q, %v", s, got.String, err)
		}
	}
}

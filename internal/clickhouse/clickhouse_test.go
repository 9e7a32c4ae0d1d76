// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	fakeclickhouse "yunion.io/x/ocadm/test/fakecloud/clickhouse"
	"yunion.io/x/ocadm/test/require"
)

const canary = "C4nary-Pa55word"

func open(t *testing.T, s *fakeclickhouse.Server) (*Admin, map[string]int) {
	t.Helper()
	verbs := map[string]int{}
	a := Open(Config{
		Host: s.Addr().IP.String(), Port: s.Addr().Port, Password: s.AdminPassword, Timeout: time.Minute,
		OnStatement: func(v string) { verbs[v]++ },
	})
	t.Cleanup(func() { _ = a.Close() })
	return a, verbs
}

func snapshot(t *testing.T, a *Admin) *Snapshot {
	t.Helper()
	s, err := a.Snapshot(t.Context())
	require.NoError(t, err)
	return s
}

func by(t *testing.T, s *fakeclickhouse.Server, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, x := s.Run(fakeclickhouse.AdminUser, q); x != nil {
			t.Fatalf("%s: %s", q, x.Message)
		}
	}
}

func TestDatabase(t *testing.T) {
	s := fakeclickhouse.Start(t)
	a, verbs := open(t, s)
	for _, name := range []string{"plain", "we`ird-näme_%", `back\slash`, "qu'ote"} {
		for _, want := range []bool{true, false} {
			if changed, err := a.EnsureDatabase(t.Context(), snapshot(t, a), name); err != nil || changed != want {
				t.Fatalf("%q: changed %v, %v; want %v", name, changed, err, want)
			}
		}
		require.NoError(t, a.DropDatabase(t.Context(), snapshot(t, a), name))
		if snapshot(t, a).has(name) {
			t.Errorf("%q is still there", name)
		}
	}
	snap := snapshot(t, a)
	clear(verbs)
	for _, name := range []string{"system", "INFORMATION_SCHEMA", "default", "", "zero\x00", "bad\xff", strings.Repeat("x", 65)} {
		if _, err := a.EnsureDatabase(t.Context(), snap, name); ClassOf(err) != Refused {
			t.Errorf("creating %q: %v", name, err)
		}
		if err := a.DropDatabase(t.Context(), snap, name); ClassOf(err) != Refused {
			t.Errorf("dropping %q: %v", name, err)
		}
	}
	if len(verbs) > 0 {
		t.Errorf("sent %v", verbs)
	}
}

func TestAccount(t *testing.T) {
	s := fakeclickhouse.Start(t)
	a, verbs := open(t, s)
	acc := Account{User: "svc", Password: `p'a\s"s` + canary, Database: "svc"}
	other := Account{User: "svc", Password: acc.Password + "2", Database: "svc"}
	if _, err := a.EnsureDatabase(t.Context(), snapshot(t, a), acc.Database); err != nil {
		t.Fatal(err)
	}
	ensure := func(what string, snap *Snapshot, acc Account, want ...string) {
		t.Helper()
		if snap == nil {
			snap = snapshot(t, a)
		}
		clear(verbs)
		changed, err := a.EnsureAccount(t.Context(), snap, acc)
		if err != nil || changed != (len(want) > 0) {
			t.Fatalf("%s: changed %v, %v", what, changed, err)
		}
		var sent []string
		for v := range verbs {
			sent = append(sent, v)
		}
		if slices.Sort(sent); !slices.Equal(sent, want) {
			t.Errorf("%s: sent %v, want %v", what, sent, want)
		}
		if err := a.VerifyAccount(t.Context(), acc); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	before := snapshot(t, a)
	ensure("new", nil, acc, "CREATE USER", "GRANT")
	ensure("again", nil, acc)
	ensure("other password", nil, other, "ALTER USER")
	if err := a.VerifyAccount(t.Context(), acc); ClassOf(err) != AccessDenied || IsDenied(err) {
		t.Errorf("the old password: %v", err)
	}
	by(t, s, "REVOKE INSERT, DROP TABLE ON `svc`.* FROM `svc`")
	ensure("grants reduced", nil, other, "GRANT")
	ensure("made since the look", before, acc, "ALTER USER", "CREATE USER", "GRANT")
	for range 2 {
		if err := a.DropAccount(t.Context(), snapshot(t, a), acc.User); err != nil {
			t.Error(err)
		}
	}
	if snapshot(t, a).knows(acc.User) {
		t.Error("the account is still there")
	}
	for _, q := range s.Statements() {
		if strings.Contains(q, canary) {
			t.Errorf("the server was sent a password: %s", q)
		}
	}
}

func TestAccountRefuses(t *testing.T) {
	s := fakeclickhouse.Start(t)
	a, verbs := open(t, s)
	snap := snapshot(t, a)
	clear(verbs)
	for _, acc := range []Account{
		{User: "default", Password: "x", Database: "d"},
		{User: "", Password: "x", Database: "d"},
		{User: "u", Password: "", Database: "d"},
		{User: "u", Password: "x", Database: "system"},
		{User: "u", Password: "x", Database: ""},
	} {
		if _, err := a.EnsureAccount(t.Context(), snap, acc); ClassOf(err) != Refused {
			t.Errorf("%+v: %v", acc, err)
		}
	}
	if err := a.DropAccount(t.Context(), snap, "default"); ClassOf(err) != Refused {
		t.Errorf("dropping the administrator: %v", err)
	}
	if len(verbs) > 0 {
		t.Errorf("sent %v", verbs)
	}
}

// An error says what failed, where, with which account and why, and contains no secret.
func TestFailuresAreClassified(t *testing.T) {
	s := fakeclickhouse.Start(t)
	a, _ := open(t, s)
	by(t, s, "CREATE USER `limited` IDENTIFIED WITH sha256_hash BY '"+hash(canary)+"'")
	try := func(what string, class Class, c Config, says ...string) *Admin {
		t.Helper()
		c.Timeout = time.Minute
		limited := Open(c)
		t.Cleanup(func() { _ = limited.Close() })
		_, err := limited.Snapshot(t.Context())
		if ClassOf(err) != class {
			t.Fatalf("%s: %v", what, err)
		}
		for _, text := range append(says, c.Addr()) {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not hold %q", what, err, text)
			}
		}
		if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), hash(canary)) {
			t.Errorf("%s: the error contains a secret: %v", what, err)
		}
		if IsDenied(err) != (class == AccessDenied) || IsUnavailable(err) != (class == Unreachable) {
			t.Errorf("%s: denied %v, unavailable %v", what, IsDenied(err), IsUnavailable(err))
		}
		return limited
	}
	at := Config{Host: s.Addr().IP.String(), Port: s.Addr().Port, User: "limited", Password: canary}
	try("no privilege", NoPrivilege, at, "Not enough privileges", "access_management")
	at.Password += "x"
	try("wrong password", AccessDenied, at, "Authentication failed", "'limited'")
	at.Password = strings.TrimSuffix(at.Password, "x")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	other := at
	other.Port = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener has a TCP address
	try("another server", Unreachable, other)
	l.Close()
	try("no server", Unreachable, other, "refused")

	hanging := at
	hanging.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(hanging).Snapshot(ctx); ClassOf(err) != Canceled && ClassOf(err) != Unreachable {
		t.Errorf("canceled: %v", err)
	}

	// A server that restarts is reached again, with the connection that was open before.
	snapshot(t, a)
	s.Pause()
	if _, err := a.Snapshot(t.Context()); ClassOf(err) != Unreachable {
		t.Errorf("gone: %v", err)
	}
	require.NoError(t, s.Resume(t.Context()))
	snapshot(t, a)
}

// An administrator from a file, which the server cannot change, is reported as such.
func TestAccountOfAFile(t *testing.T) {
	s := fakeclickhouse.Start(t)
	by(t, s, "CREATE USER `operator` IDENTIFIED WITH sha256_hash BY '"+hash(canary)+"'")
	a, _ := open(t, s)
	a.cfg.User, a.cfg.Password = fakeclickhouse.AdminUser, s.AdminPassword
	err := a.exec(t.Context(), "setting a password", "ALTER USER `default` IDENTIFIED WITH sha256_hash BY '"+hash("x")+"'")
	if ClassOf(err) != NotWritable || !strings.Contains(err.Error(), "access_control_path") {
		t.Errorf("%v", err)
	}
	if err := a.exec(t.Context(), "asking", "SELECT '"+canary+"'"); ClassOf(err) != NotUnderstood || strings.Contains(err.Error(), canary) {
		t.Errorf("%v", err)
	}
}

// unquote parses a literal as the server's lexer does: it must end exactly at the last quote.
func unquote(s string, quote byte) (string, bool) {
	if len(s) < 2 || s[0] != quote {
		return "", false
	}
	var out []byte
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
			out = append(out, s[i])
		case quote:
			return string(out), i == len(s)-1
		default:
			out = append(out, s[i])
		}
	}
	return "", false
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"plain", "a`b", `a\`, `'; DROP DATABASE x; --`, "\\'", "`\\`", "näme", "new\nline", "tab\t", "{param:Identifier}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, ok := unquote(quoteString(s), '\''); !ok || got != s {
			t.Errorf("%q became %q", s, got)
		}
		q, err := quoteIdent(s)
		if err != nil {
			return
		}
		if got, ok := unquote(q, '`'); !ok || got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}

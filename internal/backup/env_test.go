// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

var server *mariadb.Server

func TestMain(m *testing.M) {
	os.Exit(mariadb.Main(context.Background(), mariadb.Options{}, func(s *mariadb.Server) int {
		server = s
		return m.Run()
	}))
}

var cloud = Cloud{Namespace: "onecloud", Name: "default", ID: "id-1"}

// env is a server with two databases of the cloud and one of another cloud.
type env struct {
	*testing.T
	admin *mysql.Admin
}

func setUp(t *testing.T) env {
	t.Helper()
	if server == nil {
		t.Skip(mariadb.ErrNotInstalled)
	}
	require.NoError(t, server.Wipe(t.Context()))
	e := env{T: t, admin: open(t, server, cloud)}
	e.make("keystone", "report")
	other := open(t, server, Cloud{Namespace: "onecloud", Name: "other", ID: "id-2"})
	if _, err := other.EnsureDatabase(t.Context(), nil, "foreign"); err != nil {
		t.Fatal(err)
	}
	e.run("CREATE TABLE keystone.user (id INT PRIMARY KEY, name VARCHAR(50))", "INSERT INTO keystone.user VALUES (1, 'sysadmin'), (2, 'zoë')",
		"CREATE TABLE report.log (id INT AUTO_INCREMENT PRIMARY KEY, t LONGTEXT)", "INSERT INTO report.log (t) VALUES (REPEAT('x', 6000000)), ('y')",
		"CREATE TRIGGER report.t AFTER INSERT ON report.log FOR EACH ROW DELETE FROM keystone.user WHERE id = 2", "CREATE TABLE foreign.secret (id INT)")
	return e
}

func open(t *testing.T, s *mariadb.Server, c Cloud, changes ...func(*mysql.Config)) *mysql.Admin {
	t.Helper()
	cfg := mysql.Config{Host: s.Host, Port: s.Port, User: "root", Password: s.RootPassword, Patience: time.Minute,
		Owner: mysql.Owner{ID: c.ID, Namespace: c.Namespace, Name: c.Name}}
	for _, change := range changes {
		change(&cfg)
	}
	a, err := mysql.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func (e env) make(databases ...string) {
	e.Helper()
	for _, d := range databases {
		if _, err := e.admin.EnsureDatabase(e.Context(), nil, d); err != nil {
			e.Fatal(err)
		}
	}
}

func (e env) run(statements ...string) string {
	e.Helper()
	out, err := server.Execute(e.Context(), statements...)
	require.NoError(e, err)
	return out
}

func (e env) examine(databases ...string) dump.Summary {
	e.Helper()
	s, err := dump.Examine(e.Context(), e.admin, databases)
	require.NoError(e, err)
	return s
}

func (e env) plan(s Store, recipients ...age.Recipient) *Plan {
	return &Plan{
		Source: Source{
			Header:  Header{Cloud: cloud, Time: time.Now(), Version: "v4.0.3", Ocadm: "v1"},
			Objects: []Object{{Kind: "Secret", Name: "default-credentials", JSON: []byte(`{"kind":"Secret"}`)}}, Images: []string{"registry/keystone:v4.0.3"}, Admin: e.admin,
		},
		Store: s, Recipients: recipients,
	}
}

func (e env) scratchLeft() {
	e.Helper()
	if left := e.run("SHOW DATABASES LIKE 'ocadm\\_scratch%'") + e.run("SELECT name FROM ocadm.owners WHERE name LIKE 'ocadm\\_scratch%'"); left != "" {
		e.Errorf("scratch databases are left: %s", left)
	}
}

// said is a Watcher that receives the Info lines.
type said func(line string)

func (f said) Info(format string, args ...any) { f(fmt.Sprintf(format, args...)) }
func (f said) Progress(int64, int64, string)   {}

func key(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return id
}

// Run runs all steps of a backup, as an operation does one by one.
func (p *Plan) Run(ctx context.Context, w Watcher) (Info, error) {
	if err := p.Prepare(ctx, w); err != nil {
		return Info{}, err
	}
	info, err := p.Write(ctx, w)
	if err != nil {
		return Info{}, err
	}
	if err := p.Prove(ctx, w, &info); err != nil {
		return info, err
	}
	_, err = p.Retain(ctx)
	return info, err
}

// restored checks a backup that was read before, and restores its databases.
func restored(ctx context.Context, w Watcher, s Store, info Info, a *mysql.Admin, ids ...age.Identity) (Contents, error) {
	checked, err := Verify(ctx, w, s, info, ids...)
	if err == nil {
		checked, err = Try(ctx, w, s, info, checked, a, ids...)
	}
	if err != nil {
		return checked, err
	}
	return RestoreDatabases(ctx, w, s, info, checked, a, ids...)
}

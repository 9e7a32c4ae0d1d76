// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/statement"
)

// opConnect is the Op of an Error about the administrator's own login.
const opConnect = "connecting"

// Admin is an open connection as an administrator.
type Admin struct {
	cfg  Config
	db   *sql.DB
	info ServerInfo
	// on is the connection that statements go over; nil means any connection of the pool.
	on *holder
}

func (a *Admin) runs() runner {
	if a.on != nil {
		return a.on
	}
	return a.db
}

// Owner returns the cloud for which databases and accounts are created.
func (a *Admin) Owner() Owner { return a.cfg.Owner }

// Open connects to the server, and returns an error if it is too old. The caller must close the Admin.
func Open(ctx context.Context, cfg Config) (*Admin, error) {
	a, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if a.info.TooOld() {
		_ = a.Close()
		return nil, tooOld(cfg, a.info)
	}
	return a, nil
}

// connect opens a server of any version.
func connect(ctx context.Context, cfg Config) (*Admin, error) {
	db, err := cfg.open()
	if err != nil {
		return nil, cfg.newError(opConnect, err, "")
	}
	a := &Admin{cfg: cfg, db: db}
	if a.info, err = a.readInfo(ctx); err != nil {
		_ = db.Close()
		return nil, cfg.newError(opConnect, err, "")
	}
	return a, nil
}

func tooOld(cfg Config, i ServerInfo) *Error {
	return &Error{Class: TooOld, Op: opConnect, Server: cfg.Addr(), User: cfg.User, Account: i.Account, Detail: i.String() + " is too old"}
}

func (a *Admin) Close() error { return a.db.Close() }

// Conn returns a dedicated connection, for what depends on the session. The caller must close it.
func (a *Admin) Conn(ctx context.Context) (*sql.Conn, error) {
	c, err := a.db.Conn(ctx)
	if err != nil {
		return nil, a.Fail(opConnect, err)
	}
	return c, nil
}

// Fail builds the Error of an operation on a Conn.
func (a *Admin) Fail(op string, err error) error { return a.fail(op, err, NoCreate) }

func (a *Admin) ServerInfo() ServerInfo { return a.info }

func (a *Admin) readInfo(ctx context.Context) (ServerInfo, error) {
	var version, account string
	a.cfg.count("SELECT")
	if err := a.db.QueryRowContext(ctx, "SELECT VERSION(), CURRENT_USER()").Scan(&version, &account); err != nil {
		return ServerInfo{}, err
	}
	args := lists.Map(infoVariables, func(v string) any { return v })
	in := strings.TrimSuffix(strings.Repeat("?,", len(args)), ",")
	vars := map[string]string{}
	err := query(ctx, a.cfg, a.db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+in+")", args, func(r *sql.Rows) error {
		var k, v string
		if err := r.Scan(&k, &v); err != nil {
			return err
		}
		vars[strings.ToLower(k)] = v
		return nil
	})
	if err != nil {
		return ServerInfo{}, err
	}
	return newServerInfo(version, account, vars), nil
}

// runner is a connection pool or one of its connections.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (c Config) count(text string) {
	if c.OnStatement != nil {
		c.OnStatement(statement.Verb(text))
	}
}

func exec(ctx context.Context, c Config, r runner, statement string, args ...any) error {
	c.count(statement)
	_, err := r.ExecContext(ctx, statement, args...)
	return err
}

func query(ctx context.Context, c Config, r runner, statement string, args []any, each func(*sql.Rows) error) error {
	c.count(statement)
	if h, held := r.(*holder); held {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	rows, err := r.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Record returns the current row as a map from column name, in lower case, to value: the set of columns depends on the server. NULL becomes "".
func Record(rows *sql.Rows) (map[string]string, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, n := range names {
		out[strings.ToLower(n)] = values[i].String
	}
	return out, nil
}

// strings1 runs a query that returns one text column.
func strings1(ctx context.Context, c Config, r runner, statement string, args ...any) ([]string, error) {
	var out []string
	err := query(ctx, c, r, statement, args, func(rows *sql.Rows) error {
		var s string
		if err := rows.Scan(&s); err != nil {
			return err
		}
		out = append(out, s)
		return nil
	})
	return out, err
}

// fail builds the Error of an operation on this server. An error about privileges names the account that lacks them.
func (a *Admin) fail(op string, err error, denied Class, secrets ...string) error {
	e := a.cfg.newError(op, err, denied, secrets...)
	if denied != "" && e.Class == denied {
		e.Account = a.info.Account
	}
	return e
}

// serverSchemas lists the server's own schemas.
var serverSchemas = []string{"mysql", "information_schema", "performance_schema", "sys"}

// systemSchemas also includes the schema of the markers. These are never granted on or dropped here.
var systemSchemas = append(slices.Clone(serverSchemas), OwnersDatabase)

func (a *Admin) refuse(op, why string) error {
	return &Error{Class: Refused, Op: op, Server: a.cfg.Addr(), User: a.cfg.User, Detail: why}
}

// Databases lists the schemas that the account can see, sorted, without the server's own and OwnersDatabase.
func (a *Admin) Databases(ctx context.Context) ([]string, error) {
	return a.schemas(ctx, systemSchemas)
}

// Schemas is like Databases but includes OwnersDatabase: everything that a copy of a whole server holds.
func (a *Admin) Schemas(ctx context.Context) ([]string, error) { return a.schemas(ctx, serverSchemas) }

func (a *Admin) schemas(ctx context.Context, without []string) ([]string, error) {
	names, err := strings1(ctx, a.cfg, a.runs(), "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
	if err != nil {
		return nil, a.fail("listing databases", err, NoCreate)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(without, strings.ToLower(n)) })
	slices.Sort(names)
	return names, nil
}

// EnsureDatabase creates the schema with character set utf8mb4 if it does not exist. It leaves an existing one of this cloud alone, and returns an
// error of class Foreign for any other. It takes a snapshot if snap is nil.
func (a *Admin) EnsureDatabase(ctx context.Context, snap *Snapshot, name string) (changed bool, err error) {
	op := fmt.Sprintf("creating database %q", name)
	quoted, err := a.ours(op, name)
	if err != nil {
		return false, err
	}
	if snap == nil {
		if snap, err = a.Snapshot(ctx); err != nil {
			return false, err
		}
	}
	if err := a.own(ctx, op, snap, Want{Databases: []string{name}}); err != nil {
		return false, err
	}
	if snap.has(name) {
		return false, nil
	}
	if err := exec(ctx, a.cfg, a.runs(), "CREATE DATABASE IF NOT EXISTS "+quoted+" CHARACTER SET utf8mb4"); err != nil {
		return false, a.fail(op, err, NoCreate)
	}
	snap.created(name)
	return true, nil
}

// dropDatabase drops the schema and everything in it, whoever owns it, and removes this cloud's marker.
func (a *Admin) dropDatabase(ctx context.Context, name string) error {
	op := fmt.Sprintf("dropping database %q", name)
	quoted, err := a.ours(op, name)
	if err != nil {
		return err
	}
	if err := exec(ctx, a.cfg, a.runs(), "DROP DATABASE IF EXISTS "+quoted); err != nil {
		return a.fail(op, err, NoCreate)
	}
	return a.unmark(ctx, thing{kindDatabase, name})
}

// ours quotes the name of a database, and returns an error if the name is reserved.
func (a *Admin) ours(op, name string) (quoted string, err error) {
	if quoted, err = QuoteIdent(name); err != nil {
		return "", a.refuse(op, err.Error())
	}
	if slices.Contains(systemSchemas, strings.ToLower(name)) {
		return "", a.refuse(op, "its name is reserved")
	}
	return quoted, nil
}

// DropDatabase drops a database of this cloud, with everything in it. It does nothing if the database does not exist.
func (a *Admin) DropDatabase(ctx context.Context, name string) error {
	return a.drop(ctx, thing{kindDatabase, name})
}

// DropAccount drops an account of this cloud. It does nothing if the account does not exist.
func (a *Admin) DropAccount(ctx context.Context, user string) error {
	return a.drop(ctx, thing{kindAccount, user})
}

func (a *Admin) drop(ctx context.Context, t thing) error {
	snap, err := a.Snapshot(ctx)
	if err != nil {
		return err
	}
	op := "dropping " + t.String()
	t = snap.normal(t)
	owner, marked := snap.owner(t)
	switch {
	case !marked && (t.kind == kindAccount || !snap.has(t.name)):
		return nil
	case owner.ID != a.cfg.Owner.ID || !marked:
		return a.foreign(op, snap, obstacle{t, owner})
	case t.kind == kindDatabase:
		return a.dropDatabase(ctx, t.name)
	}
	return a.dropAccount(ctx, t.name)
}

// Tables lists the tables of a database, sorted.
func (a *Admin) Tables(ctx context.Context, database string) ([]string, error) {
	names, err := strings1(ctx, a.cfg, a.runs(), "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? ORDER BY 1", database)
	if err != nil {
		return nil, a.fail(fmt.Sprintf("listing the tables of database %q", database), err, NoCreate)
	}
	return names, nil
}

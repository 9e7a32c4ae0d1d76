// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// probePrefix is the prefix of the names of everything that a probe creates. Nothing else may have it.
const probePrefix = "ocadm_probe_"

// Report is the result of Probe or Inspect.
type Report struct {
	// Problems lists all findings; the returned error joins them.
	Problems []*Error
}

func (r *Report) err() error {
	return errors.Join(lists.Map(r.Problems, func(p *Error) error { return p })...)
}

// Inspect connects and looks at the version, the settings and the account's own grants, without changing anything. It reports a lack of privileges
// that SHOW GRANTS reveals; roles and other subtleties show only in Probe.
func Inspect(ctx context.Context, cfg Config) (Report, error) {
	a, r, err := begin(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer a.Close()
	grants, err := strings1(ctx, cfg, a.db, "SHOW GRANTS")
	if err != nil {
		r.add(a.fail("reading the account's grants", err, ""))
		return r, r.err()
	}
	if !mayGrant(grants) {
		r.add(&Error{Class: NoGrantOption, Op: "reading the account's grants", Server: cfg.Addr(), User: cfg.User, Account: a.info.Account,
			Detail: "it cannot grant privileges to the cloud's services (no WITH GRANT OPTION on *.*)"})
	}
	return r, r.err()
}

func mayGrant(grants []string) bool {
	return slices.ContainsFunc(grants, func(g string) bool {
		role := strings.HasPrefix(g, "GRANT `") && !strings.Contains(g, " ON ") // the privileges of a role are only known by trying
		return role || strings.Contains(g, " ON *.* TO ") && strings.Contains(g, "WITH GRANT OPTION")
	})
}

// begin connects and reports problems of the server itself.
func begin(ctx context.Context, cfg Config) (*Admin, Report, error) {
	var r Report
	a, err := connect(ctx, cfg)
	if err != nil {
		r.add(err)
		return nil, r, r.err()
	}
	if a.info.TooOld() {
		r.add(tooOld(cfg, a.info))
	}
	if a.info.ReadOnly || a.info.SuperReadOnly {
		r.add(&Error{Class: ReadOnly, Op: "connecting", Server: cfg.Addr(), User: cfg.User, Account: a.info.Account,
			Detail: "the server is read-only"})
	}
	if len(r.Problems) > 0 {
		_ = a.Close()
		return nil, r, r.err()
	}
	return a, r, nil
}

func (r *Report) add(err error) {
	if e, ok := errors.AsType[*Error](err); ok {
		r.Problems = append(r.Problems, e)
	}
}

// cleanupTimeout limits the removal of what a probe created, also after the run itself was cancelled.
const cleanupTimeout = 15 * time.Second

// Probe does on a throw-away schema what an installation does on the real ones: creates it and a user, grants the user all privileges on it, creates,
// alters and drops a table, does the same with one without a primary key as the user, and removes everything again.
func Probe(ctx context.Context, cfg Config) (Report, error) {
	a, r, err := begin(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer a.Close()
	conn, err := a.db.Conn(ctx)
	if err != nil {
		r.add(a.fail("connecting", err, ""))
		return r, r.err()
	}
	defer conn.Close()
	p := probe{Admin: a, conn: conn, report: &r}
	p.removeStale(ctx)
	p.run(ctx)
	return r, r.err()
}

type probe struct {
	*Admin
	conn   *sql.Conn
	report *Report
}

func probeName() string {
	id := make([]byte, 6)
	_, _ = rand.Read(id)
	return probePrefix + hex.EncodeToString(id)
}

// appears is how long Apart waits for a member of a cluster that applies changes late.
const appears = 10 * time.Second

// Apart returns an error if a database that is created here appears on the other server, too: both are the same one, or members of one cluster. It waits
// for that where the cloud has databases here already, which what follows would drop.
func (a *Admin) Apart(ctx context.Context, other *Admin) error {
	owned, _, err := a.Owned(ctx)
	if err != nil {
		return err
	}
	name := probeName()
	release, err := a.Lock(ctx, name) // keeps other probes from removing it
	if err != nil {
		return err
	}
	defer release()
	const op = "checking that the servers are not the same one"
	if err := exec(ctx, a.cfg, a.runs(), "CREATE DATABASE `"+name+"`"); err != nil {
		return a.fail(op, err, NoCreate)
	}
	there, err := other.Databases(ctx)
	for end := time.Now().Add(appears); err == nil && len(owned) > 0 && !slices.Contains(there, name) && time.Now().Before(end); {
		if err = wait.Sleep(ctx, 200*time.Millisecond); err == nil {
			there, err = other.Databases(ctx)
		}
	}
	if err == nil && slices.Contains(there, name) {
		err = a.refuse(op, "what is created here appears on "+other.cfg.Addr()+", too")
	}
	if gone := exec(context.WithoutCancel(ctx), a.cfg, a.runs(), "DROP DATABASE `"+name+"`"); err == nil && gone != nil {
		err = a.fail(op, gone, NoCreate)
	}
	return err
}

func (p *probe) run(ctx context.Context) {
	name := probeName()
	password := "Pr0be-" + rand.Text()
	// The lock shows other probes that this one is running; it ends with the connection.
	_, _ = strings1(ctx, p.cfg, p.conn, "SELECT COALESCE(GET_LOCK(?, 0), 0)", name)
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		p.remove(cleanup, name)
	}()
	if p.schema(ctx, name) && p.user(ctx, name, password) {
		table := "`" + name + "`.`t`"
		// Services have tables without a primary key. A server may refuse to create them, or to fill them.
		err := verifyLogin(ctx, p.cfg, name, password, name, "CREATE TABLE "+table+" (id INT)", "INSERT INTO "+table+" VALUES (1)", "DROP TABLE "+table)
		if err != nil {
			p.report.add(err)
		}
	}
}

func (p *probe) try(ctx context.Context, op string, denied Class, secret, statement string, args ...any) bool {
	if err := exec(ctx, p.cfg, p.conn, statement, args...); err != nil {
		p.report.add(p.fail(op, err, denied, secret))
		return false
	}
	return true
}

// schema tries databases and tables. The name needs no quoting: it is our own, in hexadecimal.
func (p *probe) schema(ctx context.Context, name string) bool {
	db := "`" + name + "`"
	return p.try(ctx, "creating a database", NoCreate, "", "CREATE DATABASE "+db+" CHARACTER SET utf8mb4") &&
		p.try(ctx, "creating a table", NoTable, "", "CREATE TABLE "+db+".`t` (id INT PRIMARY KEY)") &&
		p.try(ctx, "altering a table", NoTable, "", "ALTER TABLE "+db+".`t` ADD COLUMN name VARCHAR(64)") &&
		p.try(ctx, "dropping a table", NoTable, "", "DROP TABLE "+db+".`t`")
}

func (p *probe) user(ctx context.Context, name, password string) bool {
	target, err := quotePattern(name)
	if err != nil || p.info.PartialRevokes {
		target = "`" + name + "`"
	}
	for _, host := range DefaultHosts() {
		if !p.try(ctx, "creating a user", NoCreateUser, password, "CREATE USER ?@? IDENTIFIED BY ?", name, host, password) ||
			!p.try(ctx, "granting privileges", NoGrantOption, password, "GRANT ALL PRIVILEGES ON "+target+".* TO ?@?", name, host) {
			return false
		}
	}
	return true
}

func (p *probe) remove(ctx context.Context, name string) {
	quoted, err := QuoteIdent(name)
	if err != nil || !strings.HasPrefix(name, probePrefix) {
		return
	}
	// Try each one regardless of the others. A user that lacks privileges could create nothing and removes nothing.
	for _, host := range DefaultHosts() {
		p.leftover(exec(ctx, p.cfg, p.conn, "DROP USER IF EXISTS ?@?", name, host), "user "+name, NoCreateUser)
	}
	p.leftover(exec(ctx, p.cfg, p.conn, "DROP DATABASE IF EXISTS "+quoted), "database "+name, NoCreate)
}

// leftover reports what could not be removed, unless it could not be created either.
func (p *probe) leftover(err error, what string, denied Class) {
	if err == nil {
		return
	}
	made := !slices.ContainsFunc(p.report.Problems, func(e *Error) bool { return e.Class == denied })
	if made {
		p.report.add(p.fail(fmt.Sprintf("removing %s", what), err, denied))
	}
}

// removeStale removes what interrupted probes left behind: everything with probePrefix whose lock is free.
func (p *probe) removeStale(ctx context.Context) {
	pattern := strings.ReplaceAll(probePrefix, "_", `\_`) + "%"
	names, err := strings1(ctx, p.cfg, p.conn, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE ?", pattern)
	if err != nil {
		return
	}
	if users, err := strings1(ctx, p.cfg, p.conn, "SELECT DISTINCT User FROM mysql.user WHERE User LIKE ?", pattern); err == nil {
		names = append(names, users...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		free, err := strings1(ctx, p.cfg, p.conn, "SELECT COALESCE(IS_FREE_LOCK(?), 0)", name)
		if err == nil && slices.Equal(free, []string{"1"}) {
			p.remove(ctx, name)
		}
	}
}

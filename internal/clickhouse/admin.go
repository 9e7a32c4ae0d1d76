// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/statement"
)

// Admin is an administrator of a server. It connects when necessary, keeps the connection for a minute, and is safe for concurrent use.
type Admin struct {
	cfg Config

	// slot is held while the connection is in use: it runs one statement at a time.
	slot   chan struct{}
	client *ch.Client
	idle   *time.Timer
	once   sync.Once
}

// Open returns an Admin without connecting. The caller must close it.
func Open(cfg Config) *Admin { return &Admin{cfg: cfg, slot: make(chan struct{}, 1)} }

// Close closes the connection. The Admin can still be used, and closed again.
func (a *Admin) Close() error {
	a.slot <- struct{}{}
	defer func() { <-a.slot }()
	return a.hangUp()
}

func (a *Admin) hangUp() error {
	if a.client == nil || a.client.IsClosed() {
		return nil
	}
	return a.client.Close()
}

func (c Config) connect(ctx context.Context, user, password, database string) (*ch.Client, error) {
	timeout := cmp.Or(c.Timeout, defaultTimeout)
	return ch.Dial(ctx, ch.Options{
		Address: c.Addr(), User: user, Password: password, Database: database, ClientName: "ocadm", Dialer: c,
		DialTimeout: timeout, HandshakeTimeout: timeout, ReadTimeout: timeout,
	})
}

func (a *Admin) do(ctx context.Context, op string, q ch.Query, secrets ...string) error {
	select {
	case a.slot <- struct{}{}:
	case <-ctx.Done():
		return a.cfg.newError(op, ctx.Err())
	}
	defer func() { <-a.slot }()
	if a.client == nil || a.client.IsClosed() {
		client, err := a.cfg.connect(ctx, a.cfg.user(), a.cfg.Password, "")
		if err != nil {
			return a.cfg.newError(opConnect, err)
		}
		a.client = client
	}
	a.once.Do(func() { a.idle = time.AfterFunc(maxIdle, a.rest) })
	a.idle.Reset(maxIdle)
	a.cfg.count(q.Body)
	err := a.client.Do(ctx, q)
	if err == nil {
		return nil
	}
	if !ch.IsException(err) {
		_ = a.hangUp() // the state of the connection is unknown
	}
	return a.cfg.newError(op, err, secrets...)
}

// rest closes the connection unless it is in use.
func (a *Admin) rest() {
	select {
	case a.slot <- struct{}{}:
		_ = a.hangUp() // nothing depends on it any longer
		<-a.slot
	default:
	}
}

func (c Config) count(text string) {
	if c.OnStatement != nil {
		c.OnStatement(statement.Verb(text))
	}
}

func (a *Admin) exec(ctx context.Context, op, statement string, secrets ...string) error {
	return a.do(ctx, op, ch.Query{Body: statement}, secrets...)
}

// rows runs a query whose columns are all of type String.
func (a *Admin) rows(ctx context.Context, op, query string, columns ...string) ([][]string, error) {
	data := make([]proto.ColStr, len(columns))
	results := make(proto.Results, len(columns))
	for i, name := range columns {
		results[i] = proto.ResultColumn{Name: name, Data: &data[i]}
	}
	var out [][]string
	err := a.do(ctx, op, ch.Query{Body: query, Result: results, OnResult: func(context.Context, proto.Block) error {
		for i := range results.Rows() {
			out = append(out, lists.Map(data, func(c proto.ColStr) string { return c.Row(i) }))
		}
		return nil
	}})
	return out, err
}

// systemDatabases are never created, granted on or dropped here.
var systemDatabases = []string{"system", "information_schema", "default"}

func (a *Admin) refuse(op, why string) error {
	return &Error{Class: Refused, Op: op, Server: a.cfg.Addr(), User: a.cfg.user(), Detail: why}
}

// ours quotes the name of a database, and returns an error if it is one of the server's own.
func (a *Admin) ours(op, name string) (string, error) {
	quoted, err := quoteIdent(name)
	if err != nil {
		return "", a.refuse(op, err.Error())
	}
	if slices.Contains(systemDatabases, strings.ToLower(name)) {
		return "", a.refuse(op, "it is a system database")
	}
	return quoted, nil
}

// EnsureDatabase creates the database if it does not exist. It does not change an existing one.
func (a *Admin) EnsureDatabase(ctx context.Context, snap *Snapshot, name string) (changed bool, err error) {
	op := fmt.Sprintf("creating database %q", name)
	quoted, err := a.ours(op, name)
	if err != nil || snap.has(name) {
		return false, err
	}
	if err := a.exec(ctx, op, "CREATE DATABASE IF NOT EXISTS "+quoted); err != nil {
		return false, err
	}
	snap.created(name)
	return true, nil
}

// DropDatabase drops the database and everything in it, if it exists.
func (a *Admin) DropDatabase(ctx context.Context, snap *Snapshot, name string) error {
	op := fmt.Sprintf("dropping database %q", name)
	quoted, err := a.ours(op, name)
	if err != nil || !snap.has(name) {
		return err
	}
	return a.exec(ctx, op, "DROP DATABASE IF EXISTS "+quoted)
}

func isCode(err error, code int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

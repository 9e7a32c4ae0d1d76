// SPDX-License-Identifier: Apache-2.0

// Package mysql administers the database server of a cloud: schemas and accounts, each call idempotent, and the preflight probe that
// really tries what an installation will do. It is the only user of the SQL driver. It neither reads nor writes what services store.
//
// No secret leaves the package: errors carry the account and the statement to run, never a password, and the driver's own log is off.
package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"net"
	"strconv"
	"time"

	driverpkg "github.com/go-sql-driver/mysql"
)

const (
	defaultPort    = 3306
	defaultTimeout = 10 * time.Second
	// maxConns: the operator's work on a database is short and rare.
	maxConns = 4
)

// Config says how to reach a server as an administrator.
type Config struct {
	Host string
	// Port is 3306 when zero.
	Port     int
	User     string
	Password string
	// TLS says how connections are encrypted; TLSPreferred when empty.
	TLS TLSMode
	// CA are certificates in PEM that TLSVerifyCA and TLSVerifyIdentity trust; those of the system when empty.
	CA string
	// Timeout bounds connecting, and each read and write; 10 s when zero.
	Timeout time.Duration
	// Patience bounds each read and write instead, where statements take long: dumps, loads.
	Patience time.Duration
	// LockIdle is after how long without a sign of its holder the server gives a lock up; a minute when zero. The server does not notice by itself that the
	// machine of a holder is gone: not before TCP does, which takes two hours. LockWait is how long a lock is waited for; 90 s when zero.
	LockIdle, LockWait time.Duration

	// Owner is the cloud that databases and accounts are made for. Without it nothing is made, changed or dropped.
	Owner Owner
	// Adopt is what it may take over.
	Adopt Adoption

	// Dial replaces the network, e.g. by a port forward.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// OnStatement receives the verb ("CREATE USER", "SELECT") of every statement before it is sent.
	OnStatement func(verb string)

	// database is the one that connections begin in, "" for none.
	database string
}

// Addr is host:port.
func (c Config) Addr() string {
	return net.JoinHostPort(c.Host, strconv.Itoa(cmp.Or(c.Port, defaultPort)))
}

// as is the same server with another account.
func (c Config) as(user, password, database string) Config {
	c.User, c.Password, c.database = user, password, database
	return c
}

// open makes a pool; nothing is connected yet. The driver takes its configuration as a value, not as a DSN, so no character of a
// password needs escaping. Placeholders are interpolated by the driver: statements like CREATE USER cannot be prepared.
func (c Config) open() (*sql.DB, error) {
	d := driverpkg.NewConfig()
	d.Net, d.Addr, d.DBName = "tcp", c.Addr(), c.database
	d.User, d.Passwd = c.User, c.Password
	t, fallback, err := c.tls()
	if err != nil {
		return nil, err
	}
	d.TLS, d.AllowFallbackToPlaintext = t, fallback
	timeout := cmp.Or(c.Timeout, defaultTimeout)
	answer := max(timeout, c.Patience)
	d.Timeout, d.ReadTimeout, d.WriteTimeout = timeout, answer, answer
	d.InterpolateParams = true
	d.Logger = &driverpkg.NopLogger{}
	d.DialFunc = c.Dial
	conn, err := driverpkg.NewConnector(d)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(conn)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(1)
	db.SetConnMaxIdleTime(time.Minute)
	return db, nil
}

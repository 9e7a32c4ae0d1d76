// SPDX-License-Identifier: Apache-2.0

// Package mysql administers the database server of a cloud: schemas and accounts, with idempotent calls, and a preflight probe that really tries what
// an installation will do. It is the only user of the SQL driver. It neither reads nor writes the data of services.
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
	// maxConns is small because the operator's work on a database is short and rare.
	maxConns = 4
	// maxPacket is the largest statement that any server accepts. The limit of the driver would be lower than that of some servers.
	maxPacket = 1 << 30
)

// Config describes how to reach a server as an administrator.
type Config struct {
	Host string
	// Port is 3306 when zero.
	Port     int
	User     string
	Password string
	// TLS is the encryption mode of connections; TLSPreferred when empty.
	TLS TLSMode
	// CA holds the PEM-encoded CA certificates that TLSVerifyCA and TLSVerifyIdentity trust; the system's when empty.
	CA string
	// Timeout limits connecting and each read and write; 10 s when zero.
	Timeout time.Duration
	// Patience, if longer than Timeout, limits each read and write instead, where statements take long: dumps, loads.
	Patience time.Duration
	// LockIdle is the time without a sign of life from the holder after which the server releases a lock; a minute when zero. Otherwise the server would
	// notice that the holder's machine is gone only after TCP does, which takes two hours. LockWait is how long to wait for a lock; 90 s when zero.
	LockIdle, LockWait time.Duration

	// Owner is the cloud for which databases and accounts are created. Without it nothing is created, changed or dropped.
	Owner Owner
	// Adopt lists what the cloud may adopt.
	Adopt Adoption

	// Dial replaces the network, for example with a port forward.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// OnStatement receives the verb ("CREATE USER", "SELECT") of every statement before it is sent.
	OnStatement func(verb string)

	// database is the initial database of connections; "" for none.
	database string
	// login is true for a connection that only tries to log in.
	login bool
}

func (c Config) Addr() string {
	return net.JoinHostPort(c.Host, strconv.Itoa(cmp.Or(c.Port, defaultPort)))
}

// as returns the configuration for a login to the same server with another account.
func (c Config) as(user, password, database string) Config {
	c.User, c.Password, c.database, c.login = user, password, database, true
	return c
}

// open returns a pool without connecting. The driver takes its configuration as a value, not as a DSN, so passwords need no escaping. The driver
// interpolates placeholders, because statements like CREATE USER cannot be prepared.
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
	d.MaxAllowedPacket = maxPacket
	d.Logger = &driverpkg.NopLogger{}
	d.DialFunc = c.Dial
	// A server may give its connections other settings: rows would be left out, statements refused, changes forgotten with their connection, and names of
	// accounts padded.
	if !c.login {
		d.Params = map[string]string{"sql_select_limit": "18446744073709551615", "sql_big_selects": "1", "autocommit": "1",
			"sql_mode": "'STRICT_ALL_TABLES'"}
		_ = d.Apply(driverpkg.BeforeConnect(func(context.Context, *driverpkg.Config) error { c.count("SET"); return nil })) // this option never fails
	}
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

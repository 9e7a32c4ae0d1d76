// SPDX-License-Identifier: Apache-2.0

// Package clickhouse administers the ClickHouse server of a cloud: databases, accounts and grants, each call idempotent. It is the only
// user of the client for ClickHouse's native protocol. It neither reads nor writes what services store.
//
// No secret leaves the package: the server is sent the hash of a password that is to be set, never the password, so its logs do not have
// it either; errors name the account and what the server said, without secrets.
package clickhouse

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"time"
)

const (
	// defaultPort is that of the native protocol without TLS.
	defaultPort    = 9000
	defaultUser    = "default"
	defaultTimeout = 10 * time.Second
	// maxIdle is how long an unused connection is kept.
	maxIdle = time.Minute
)

// Config says how to reach a server as an administrator.
type Config struct {
	Host string
	// Port is 9000 when zero.
	Port int
	// User is "default" when empty.
	User     string
	Password string
	// Timeout bounds connecting, and each answer; 10 s when zero.
	Timeout time.Duration

	// Dial replaces the network, e.g. by a port forward.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// OnStatement receives the verb ("CREATE USER", "SELECT") of every statement before it is sent.
	OnStatement func(verb string)
}

// Addr is host:port.
func (c Config) Addr() string {
	return net.JoinHostPort(c.Host, strconv.Itoa(cmp.Or(c.Port, defaultPort)))
}

func (c Config) user() string { return cmp.Or(c.User, defaultUser) }

// DialContext makes a Config the client's dialer.
func (c Config) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, network, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

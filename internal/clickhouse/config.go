// SPDX-License-Identifier: Apache-2.0

// Package clickhouse administers the ClickHouse server of a cloud: databases, accounts and grants, with idempotent calls. It is the only user of the
// client for ClickHouse's native protocol. It neither reads nor writes the data of services.
//
// No secret leaves the package: to set a password it sends the server only the hash, so the server's logs do not contain the password either; errors
// name the account and what the server said, without secrets.
package clickhouse

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"time"
)

const (
	// defaultPort is the port of the native protocol without TLS.
	defaultPort    = 9000
	defaultUser    = "default"
	defaultTimeout = 10 * time.Second
	// maxIdle is how long an unused connection is kept.
	maxIdle = time.Minute
)

// Config describes how to reach a server as an administrator.
type Config struct {
	Host string
	// Port is 9000 when zero.
	Port int
	// User is "default" when empty.
	User     string
	Password string
	// Timeout limits connecting and each response; 10 s when zero.
	Timeout time.Duration

	// Dial replaces the network, for example with a port forward.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// OnStatement receives the verb ("CREATE USER", "SELECT") of every statement before it is sent.
	OnStatement func(verb string)
}

func (c Config) Addr() string {
	return net.JoinHostPort(c.Host, strconv.Itoa(cmp.Or(c.Port, defaultPort)))
}

func (c Config) user() string { return cmp.Or(c.User, defaultUser) }

// DialContext implements the client's Dialer.
func (c Config) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, network, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"
)

// dial connects to the database.
func (o *operator) dial(ctx context.Context, network, address string) (net.Conn, error) {
	o.mu.Lock()
	o.dials++
	o.mu.Unlock()
	if o.isDead() {
		return nil, errKilled
	}
	o.fault.mu.Lock()
	broken := o.fault.dial
	o.fault.mu.Unlock()
	if broken != nil {
		if err := broken(ctx); err != nil {
			return nil, err
		}
	}
	dial := (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	if o.w.Pods != nil {
		dial = o.w.Pods.Dial
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	o.fault.mu.Lock()
	defer o.fault.mu.Unlock()
	o.fault.conns = append(o.fault.conns, conn)
	return &sqlConn{Conn: conn, o: o}, nil
}

// sqlConn inspects the statements that pass: the driver writes each as one packet, with a header of four bytes, the command, and the text.
type sqlConn struct {
	net.Conn
	o   *operator
	die bool
}

const comQuery = 3

var changes = []string{"CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "SET", "INSERT", "UPDATE", "DELETE", "FLUSH", "RENAME"}

func (c *sqlConn) Write(b []byte) (int, error) {
	if len(b) > 5 && b[4] == comQuery {
		text, _, _ := strings.Cut(string(b[5:]), " IDENTIFIED BY")
		verb, _, _ := strings.Cut(text, " ")
		c.o.mu.Lock()
		c.o.sql++
		c.o.mu.Unlock()
		if slices.Contains(changes, verb) {
			die, err := c.o.begin("SQL " + ids.ReplaceAllString(text, "*"))
			if err != nil {
				return 0, err
			}
			c.die = die
		}
		if err := c.o.fault.statement(text); err != nil {
			return 0, err
		}
	}
	if !c.die && c.o.isDead() {
		return 0, errKilled
	}
	return c.Conn.Write(c.o.fault.mangled(b))
}

func (c *sqlConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.die {
		c.die = false
		c.o.die()
	}
	if c.o.isDead() {
		return 0, errKilled
	}
	c.o.fault.tell(b[:max(0, n)])
	return n, err
}

func (f *fault) mangled(packet []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mangle == nil {
		return packet
	}
	return f.mangle(packet)
}

func (f *fault) tell(packet []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard != nil {
		f.heard(string(packet))
	}
}

func (f *fault) statement(text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sql == nil {
		return nil
	}
	return f.sql(text)
}

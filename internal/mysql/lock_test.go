// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// gone is a connection from a machine that may lose its power: from then on nothing leaves it, not even the end of the connection.
type gone struct {
	net.Conn
	is *atomic.Bool
}

func (g gone) Write(b []byte) (int, error) {
	if g.is.Load() {
		return len(b), nil
	}
	return g.Conn.Write(b)
}

func (g gone) Close() error {
	if g.is.Load() {
		return nil
	}
	return g.Conn.Close()
}

// TestLock: a lock outlives no holder whose machine is gone, and stays with one that does nothing but hold it.
func TestLock(t *testing.T) {
	const idle, short = 2 * time.Second, time.Second
	cfg := root(t)
	var off atomic.Bool
	lost := cfg
	lost.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return gone{c, &off}, err
	}
	holder, next := open(t, lost), open(t, cfg)
	if _, err := holder.lock(t.Context(), "ocadm_test", idle, short); err != nil {
		t.Fatal(err)
	}
	if _, err := next.lock(t.Context(), "ocadm_test", idle, 2*idle); ClassOf(err) != Refused {
		t.Fatalf("the holder lives: %v", err)
	}
	off.Store(true)
	began := time.Now()
	release, err := next.lock(t.Context(), "ocadm_test", idle, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("after %.1f s", time.Since(began).Seconds())
	release()
	if again, err := next.lock(t.Context(), "ocadm_test", idle, short); err != nil {
		t.Errorf("released: %v", err)
	} else {
		again()
	}
}

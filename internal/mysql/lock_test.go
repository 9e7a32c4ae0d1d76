// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
)

// gone is a connection from a machine that may lose power: from then on it sends nothing, not even the end of the connection.
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

// TestLock checks that a holder whose machine is gone loses the lock, and that a holder keeps it without doing anything else.
func TestLock(t *testing.T) {
	const idle = 5 * time.Second
	cfg := root(t)
	cfg.LockIdle, cfg.LockWait = idle, 2*idle
	var off atomic.Bool
	lost := cfg
	lost.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return gone{c, &off}, err
	}
	holder, next := open(t, lost), open(t, cfg)
	if _, _, err := holder.Hold(t.Context(), "ocadm_test", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Lock(t.Context(), "ocadm_test"); ClassOf(err) != Locked {
		t.Fatalf("the holder lives: %v", err)
	}
	off.Store(true)
	began := time.Now()
	cfg.LockWait = 30 * time.Second
	next = open(t, cfg)
	release, err := next.Lock(t.Context(), "ocadm_test")
	require.NoError(t, err)
	t.Logf("after %.1f s", time.Since(began).Seconds())
	release()
	if again, err := next.Lock(t.Context(), "ocadm_test"); err != nil {
		t.Errorf("released: %v", err)
	} else {
		again()
	}
}

// asleep is a connection of a process that may be suspended: it sends nothing until it resumes.
type asleep struct {
	net.Conn
	*sync.RWMutex
}

func (a asleep) Write(b []byte) (int, error) {
	a.RLock()
	defer a.RUnlock()
	return a.Conn.Write(b)
}

// TestHold checks that a waiting process learns who holds the lock, and that a process that sleeps until another one has the lock can change nothing when it wakes.
func TestHold(t *testing.T) {
	const idle = 5 * time.Second
	cfg := root(t)
	cfg.LockIdle, cfg.LockWait = idle, 2*idle
	var sleep sync.RWMutex
	slow := cfg
	slow.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return asleep{c, &sleep}, err
	}
	first, next := open(t, slow), open(t, cfg)
	held, release, err := first.Hold(t.Context(), "ocadm_test", nil)
	require.NoError(t, err)
	defer release()
	if again, _, err := held.Hold(t.Context(), "ocadm_test", nil); err != nil || again != held {
		t.Fatalf("what holds the lock keeps it: %v", err)
	}
	var heard []string
	_, _, err = next.Hold(t.Context(), "ocadm_test", func(who string) { heard = append(heard, who) })
	const who = "another run (connection "
	if ClassOf(err) != Locked || !strings.Contains(err.Error(), who) || len(heard) != 1 || !strings.HasPrefix(heard[0], who) || !strings.Contains(heard[0], cfg.User+" from ") {
		t.Fatalf("%q, %v", heard, err)
	}
	time.Sleep(2 * idle) // only hold the lock
	require.NoError(t, held.StillHolds(t.Context()))
	if _, err := held.EnsureDatabase(t.Context(), nil, "one"); err != nil {
		t.Fatal(err)
	}
	sleep.Lock()
	cfg.LockWait = 30 * time.Second
	other, end, err := open(t, cfg).Hold(t.Context(), "ocadm_test", nil)
	require.NoError(t, err)
	defer end()
	sleep.Unlock()
	for what, err := range map[string]error{"drop": held.DropDatabase(t.Context(), "one"), "statement": held.Exec(t.Context(), "DROP DATABASE one"), "look": held.StillHolds(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "another run may hold it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := other.Databases(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%q, %v", list, err)
	}
	if err := other.DropDatabase(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	driverpkg "github.com/go-sql-driver/mysql"
)

// Defaults of Config.LockIdle and Config.LockWait. The wait is longer than the server takes to drop a holder that is gone.
const (
	lockIdle = time.Minute
	lockWait = 90 * time.Second
)

// Lock takes a lock that one connection to the server holds at a time, until it is released or the connection ends. It waits for a while, because the holder may be gone.
func (a *Admin) Lock(ctx context.Context, name string) (release func(), err error) {
	_, release, err = a.lock(ctx, name, nil)
	return release, err
}

// Hold is like Lock, for work that must end with the lock: everything that the returned Admin creates, changes or drops goes over the connection that
// holds the lock. So a process that sleeps for long and wakes when another one has the lock can no longer change anything. waiting, which may be nil,
// is called with the current holder while Hold waits. If the Admin already holds a lock, Hold returns it with a release that does nothing.
func (a *Admin) Hold(ctx context.Context, name string, waiting func(holder string)) (held *Admin, release func(), err error) {
	if a.Holds() {
		return a, func() {}, nil
	}
	on, release, err := a.lock(ctx, name, waiting)
	if err != nil {
		return nil, nil, err
	}
	of := *a
	of.on = on
	return &of, release, nil
}

// Holds reports whether the statements of this Admin go over a connection that holds a lock.
func (a *Admin) Holds() bool { return a.on != nil }

// Exec runs a statement on the connection that holds the lock.
func (a *Admin) Exec(ctx context.Context, statement string) error {
	_, err := a.on.ExecContext(ctx, statement)
	return err
}

// StillHolds returns an error unless the server reports that this connection holds the lock.
func (a *Admin) StillHolds(ctx context.Context) error {
	got, err := strings1(ctx, a.cfg, a.on, "SELECT COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0)", a.on.name)
	if err == nil && (len(got) != 1 || got[0] != "1") {
		err = a.on.lost("the server released it")
	}
	if err != nil {
		return a.Fail(fmt.Sprintf("checking lock %q", a.on.name), err)
	}
	return nil
}

// holder is a connection that holds a lock. It sends one statement at a time, including the pings that keep it alive.
type holder struct {
	name string
	cfg  Config
	mu   sync.Mutex
	conn *sql.Conn
}

// lost returns the error of a statement whose lock is gone.
func (h *holder) lost(why string) error {
	return &Error{Class: Unreachable, Op: fmt.Sprintf("keeping lock %q", h.name), Server: h.cfg.Addr(), User: h.cfg.User,
		Detail: "the lock was lost, and another run may hold it now: " + why}
}

func (h *holder) judge(err error) error {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, driverpkg.ErrInvalidConn) || errors.Is(err, sql.ErrConnDone) {
		return h.lost(err.Error())
	}
	return err
}

func (h *holder) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out, err := h.conn.ExecContext(ctx, text, args...)
	return out, h.judge(err)
}

// QueryContext must be called with h.mu held, because the rows are read from the connection afterwards.
func (h *holder) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	rows, err := h.conn.QueryContext(ctx, text, args...)
	return rows, h.judge(err)
}

// ping waits at most for patience: the user of the lock waits for it, and the server releases the lock soon after.
func (h *holder) ping(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.conn.PingContext(ctx) // a sign of life for the server; the user of the lock notices a lost server itself
}

// end closes the connection, and with it releases the lock and the settings of its session.
func (h *holder) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = h.conn.Close()
}

func (a *Admin) lock(ctx context.Context, name string, waiting func(string)) (*holder, func(), error) {
	c, err := a.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	h := &holder{name: name, cfg: a.cfg, conn: c}
	if err := a.take(ctx, h, waiting); err != nil {
		h.end()
		return nil, nil, err
	}
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	idle := cmp.Or(a.cfg.LockIdle, lockIdle)
	var signs sync.WaitGroup
	signs.Go(func() {
		for tick := time.NewTicker(idle / 4); ; {
			select {
			case <-holding.Done():
				tick.Stop()
				return
			case <-tick.C:
				h.ping(holding, idle/2)
			}
		}
	})
	return h, func() {
		stop()
		signs.Wait()
		h.end()
	}, nil
}

// take takes the lock, and waits for it if necessary.
func (a *Admin) take(ctx context.Context, h *holder, waiting func(string)) error {
	idle, wait := cmp.Or(a.cfg.LockIdle, lockIdle), cmp.Or(a.cfg.LockWait, lockWait)
	op := fmt.Sprintf("taking lock %q", h.name)
	if _, err := h.conn.ExecContext(ctx, "SET SESSION wait_timeout = ?", int(idle.Seconds())); err != nil {
		return a.Fail(op, err)
	}
	said := ""
	for began := time.Now(); ; {
		var got sql.NullInt64
		if err := h.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", h.name).Scan(&got); err != nil {
			return a.Fail(op, err)
		}
		if got.Int64 == 1 {
			return nil
		}
		who := h.other(ctx)
		if time.Since(began) >= wait {
			return &Error{Class: Locked, Op: op, Server: a.cfg.Addr(), User: a.cfg.User, Detail: fmt.Sprintf("%s holds it and did not end within %s", who, wait)}
		}
		if waiting != nil && who != said {
			said = who
			waiting(who)
		}
	}
}

func (h *holder) other(ctx context.Context) string {
	var id sql.NullInt64
	if err := h.conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", h.name).Scan(&id); err != nil || !id.Valid {
		return "another run"
	}
	var from string
	const list = "SELECT CONCAT(USER, ' from ', HOST) FROM information_schema.PROCESSLIST WHERE ID = ?"
	if err := h.conn.QueryRowContext(ctx, list, id.Int64).Scan(&from); err != nil {
		return fmt.Sprintf("another run (connection %d)", id.Int64)
	}
	return fmt.Sprintf("another run (connection %d of %s)", id.Int64, from)
}

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

// Defaults of Config.LockIdle and Config.LockWait: a lock is waited for longer than it takes to lose a holder that is gone.
const (
	lockIdle = time.Minute
	lockWait = 90 * time.Second
)

// Lock is held by one connection to the server at a time, until it is released or the connection ends. It waits for a while: the holder may be gone.
func (a *Admin) Lock(ctx context.Context, name string) (release func(), err error) {
	_, release, err = a.lock(ctx, name, nil)
	return release, err
}

// Hold is Lock for work that must end with the lock: what the Admin that it returns makes, changes and drops goes over the connection that holds the lock. A
// process that sleeps for long, and wakes when another one has the lock, changes nothing any more. waiting gets who holds the lock while it is waited
// for; nil to do without. An Admin that holds a lock keeps it, and the release that it gets does nothing.
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

// Holds reports whether the statements of this Admin go over the connection that holds a lock.
func (a *Admin) Holds() bool { return a.on != nil }

// Exec runs a statement on the connection that holds the lock.
func (a *Admin) Exec(ctx context.Context, statement string) error {
	_, err := a.on.ExecContext(ctx, statement)
	return err
}

// StillHolds asks the server whether the lock is still held.
func (a *Admin) StillHolds(ctx context.Context) error {
	got, err := strings1(ctx, a.cfg, a.on, "SELECT COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0)", a.on.name)
	if err == nil && (len(got) != 1 || got[0] != "1") {
		err = a.on.lost("the server has given it up")
	}
	if err != nil {
		return a.Fail(fmt.Sprintf("looking at lock %q", a.on.name), err)
	}
	return nil
}

// HoldAgain takes the lock again if it was lost. It is for work that has changed nothing yet: another program may have held the lock meanwhile. lost reports
// whether it was.
func (a *Admin) HoldAgain(ctx context.Context, waiting func(holder string)) (lost bool, err error) {
	if a.StillHolds(ctx) == nil {
		return false, nil
	}
	h := a.on
	h.end() // the pool may have no other connection to spare
	c, err := a.Conn(ctx)
	if err != nil {
		return true, err
	}
	again := &holder{name: h.name, cfg: h.cfg, conn: c}
	if err := a.take(ctx, again, waiting); err != nil {
		again.end()
		return true, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = c
	return true, nil
}

// holder is a connection that holds a lock. It sends one statement at a time, and a sign of life is one.
type holder struct {
	name string
	cfg  Config
	mu   sync.Mutex
	conn *sql.Conn
}

// lost is the error of a statement whose lock is gone.
func (h *holder) lost(why string) error {
	return &Error{Class: Unreachable, Op: fmt.Sprintf("keeping lock %q", h.name), Server: h.cfg.Addr(), User: h.cfg.User,
		Detail: "it is lost, and another run may hold it now: " + why}
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

// QueryContext is called with the lock of the holder: the rows are read from its connection afterwards.
func (h *holder) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	rows, err := h.conn.QueryContext(ctx, text, args...)
	return rows, h.judge(err)
}

// ping waits for at most so long: what uses the lock waits for it, and the server has given the lock up soon after.
func (h *holder) ping(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.conn.PingContext(ctx) // a sign for the server; what uses the lock finds a lost server itself
}

// end ends the lock, and the settings of its session, with the connection.
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

// take waits for the lock.
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
			return &Error{Class: Locked, Op: op, Server: a.cfg.Addr(), User: a.cfg.User, Detail: fmt.Sprintf("%s holds it, and has not ended within %s", who, wait)}
		}
		if waiting != nil && who != said {
			said = who
			waiting(who)
		}
	}
}

// other names who holds the lock.
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

// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"
)

const (
	// lockIdle is after how long without a sign of its holder the server gives a lock up. The server does not notice by itself that the machine of a holder
	// is gone: not before TCP does, which takes two hours.
	lockIdle = time.Minute
	// lockWait is how long a lock is waited for: longer than it takes to lose a holder that is gone.
	lockWait = 90 * time.Second
)

// Lock is held by one connection to the server at a time, until it is released or the connection ends. It waits for a while: the holder may be gone.
func (a *Admin) Lock(ctx context.Context, name string) (release func(), err error) {
	return a.lock(ctx, name, lockIdle, lockWait)
}

func (a *Admin) lock(ctx context.Context, name string, idle, wait time.Duration) (release func(), err error) {
	op := fmt.Sprintf("taking lock %q", name)
	c, err := a.Conn(ctx)
	if err != nil {
		return nil, err
	}
	end := func() {
		_ = c.Raw(func(any) error { return driver.ErrBadConn }) // the lock, and the setting, end with the connection
		_ = c.Close()
	}
	if _, err := c.ExecContext(ctx, "SET SESSION wait_timeout = ?", int(idle.Seconds())); err != nil {
		end()
		return nil, a.Fail(op, err)
	}
	for began := time.Now(); ; {
		var got sql.NullInt64
		if err := c.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", name).Scan(&got); err != nil {
			end()
			return nil, a.Fail(op, err)
		}
		if got.Int64 == 1 {
			break
		}
		if time.Since(began) >= wait {
			end()
			return nil, a.refuse(op, "another run holds it: wait for its end")
		}
	}
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	var signs sync.WaitGroup
	signs.Go(func() {
		for tick := time.NewTicker(idle / 4); ; {
			select {
			case <-holding.Done():
				tick.Stop()
				return
			case <-tick.C:
				_ = c.PingContext(holding) // a sign for the server; what uses the lock finds a lost server itself
			}
		}
	})
	return func() {
		stop()
		signs.Wait()
		end()
	}, nil
}

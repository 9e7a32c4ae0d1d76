// SPDX-License-Identifier: Apache-2.0

// Package flock waits for a file lock until a context ends, which flock(2) itself cannot.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/wait"
)

// Interval is the interval between attempts to take a lock that another process holds.
const Interval = 100 * time.Millisecond

// Take locks a file; how is unix.LOCK_EX or unix.LOCK_SH. If another process holds the lock, waiting is called once, unless it is nil. Closing the
// file releases the lock.
func Take(ctx context.Context, f *os.File, how int, waiting func()) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		if err := wait.Sleep(ctx, Interval); err != nil {
			return fmt.Errorf("waiting for another process: %w", err)
		}
	}
}

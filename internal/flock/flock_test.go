// SPDX-License-Identifier: Apache-2.0

package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/test/require"
)

// Readers share a lock; a writer waits for them, reports that once, and waits no longer than allowed.
func TestTake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		return f
	}
	first, second, writer := open(), open(), open()
	defer second.Close()
	defer writer.Close()
	for _, f := range []*os.File{first, second} {
		require.NoError(t, Take(t.Context(), f, unix.LOCK_SH, nil))
	}
	said := 0
	short, cancel := context.WithTimeout(t.Context(), 3*Interval)
	defer cancel()
	if err := Take(short, writer, unix.LOCK_EX, func() { said++ }); !errors.Is(err, context.DeadlineExceeded) || said != 1 {
		t.Errorf("%v, said %d times", err, said)
	}
	first.Close()
	time.AfterFunc(Interval, func() { second.Close() })
	if err := Take(t.Context(), writer, unix.LOCK_EX, nil); err != nil {
		t.Error(err)
	}
}

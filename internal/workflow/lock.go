// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/finding"
	waiting "yunion.io/x/ocadm/internal/wait"
)

// Lock takes the lock that keeps two runs apart. The kernel releases it when the process ends, however it ends.
func Lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory of the lock: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		return nil, busyAt(path)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // only for the message to a second run
	}
	return func() { _ = f.Close() }, nil
}

// lockPatience bounds AwaitLock: the pod of a killed command keeps working for a minute or two.
const lockPatience = 3 * time.Minute

// AwaitLock is Lock for work that may find an earlier run of itself still active: it waits for that run to end, and reports the wait once.
func AwaitLock(ctx context.Context, path string, report func(cause string)) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	_ = waiting.Until(ctx, "the lock", 500*time.Millisecond, func(context.Context) (bool, string, error) { // flock offers no event; err has the details
		unlock, err = Lock(path)
		cause, busy := Busy(err)
		return !busy, cause, nil
	}, report)
	return unlock, err
}

// codeBusy is the finding's code when another ocadm is running on the machine.
const codeBusy = "OCA-1050"

// Busy reports whether an error means that another ocadm is running on the machine, and returns the cause, which names it.
func Busy(err error) (cause string, busy bool) {
	found := finding.Of(err)
	if len(found) != 1 || found[0].Code != codeBusy {
		return "", false
	}
	return found[0].Cause, true
}

func busyAt(path string) error {
	pid := "unknown"
	if raw, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(raw))) > 0 {
		pid = strings.TrimSpace(string(raw))
	}
	return finding.New(codeBusy, "Another ocadm is running on this machine", fmt.Sprintf("process %s holds %s", pid, path),
		"wait until it ends; to see what it is doing: ps -fp "+pid)
}

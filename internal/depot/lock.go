// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/finding"
)

// CodeBusy is the finding of a depot in which something is stored while its garbage is to be removed.
const CodeBusy = "OCA-2331"

const (
	// lockInterval is how often a lock is tried: flock cannot be waited for with an end.
	lockInterval = 100 * time.Millisecond
	// prunePatience is how long a prune waits for what is being stored.
	prunePatience = 30 * time.Second
)

// Storing does what stores blobs and then the root that needs them. Garbage is not removed meanwhile, in no process. Several may store at the
// same time.
func (s *Store) Storing(ctx context.Context, do func() error) error {
	return s.locked(ctx, unix.LOCK_SH, do)
}

// alone does something while nothing is stored.
func (s *Store) alone(ctx context.Context, do func() error) error {
	ran := false
	waiting, cancel := context.WithTimeoutCause(ctx, s.patience, errStored)
	defer cancel()
	err := s.locked(waiting, unix.LOCK_EX, func() error {
		ran = true
		return do()
	})
	if !ran && errors.Is(err, errStored) {
		return finding.Errorf(CodeBusy, "The depot in "+s.dir+" is being filled", "wait for it, ocadm depot status shows what is complete; then run the command again", "%w", err)
	}
	return err
}

var errStored = errors.New("ocadm init, an update or the depot itself is storing something there")

func (s *Store) locked(ctx context.Context, how int, do func() error) error {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the depot: %w", err)
	}
	defer func() { _ = f.Close() }() // which unlocks it
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return do()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("locking the depot: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the lock of the depot: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

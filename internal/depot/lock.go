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
	"yunion.io/x/ocadm/internal/flock"
)

// CodeBusy is the finding code for a depot that cannot be pruned because something is being stored.
const CodeBusy = "OCA-2331"

// prunePatience is how long a prune waits for writers.
const prunePatience = 30 * time.Second

// Storing calls do, which stores blobs and then the root that needs them. No process removes garbage meanwhile. Several writers may run concurrently.
func (s *Store) Storing(ctx context.Context, do func() error) error {
	return s.locked(ctx, unix.LOCK_SH, do)
}

// alone calls do while nothing is being stored.
func (s *Store) alone(ctx context.Context, do func() error) error {
	ran := false
	waiting, cancel := context.WithTimeoutCause(ctx, s.patience, errStored)
	defer cancel()
	err := s.locked(waiting, unix.LOCK_EX, func() error {
		ran = true
		return do()
	})
	if !ran && errors.Is(err, errStored) {
		return finding.Errorf(CodeBusy, "The depot in "+s.dir+" is being filled", "wait until it is filled (see ocadm depot status); then run the command again", "%w", err)
	}
	return err
}

var errStored = errors.New("ocadm init, an update or the depot itself is storing something there")

func (s *Store) locked(ctx context.Context, how int, do func() error) error {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the depot: %w", err)
	}
	defer func() { _ = f.Close() }() // this releases the lock
	if err := flock.Take(ctx, f, how, nil); err != nil {
		return fmt.Errorf("locking the depot: %w", err)
	}
	return do()
}

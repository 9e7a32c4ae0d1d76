// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"log/slog"
	"time"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// snapshotTimeout bounds one snapshot.
	snapshotTimeout = 10 * time.Minute
	// snapshotRetry is when a snapshot that failed is tried again: etcd may only be starting.
	snapshotRetry = time.Minute
)

// KeepSnapshots saves a snapshot after each interval, until ctx ends. A restart does not make it save earlier.
func KeepSnapshots(ctx context.Context, files host.Files, endpoint, dir string, every time.Duration, log *slog.Logger) error {
	wait := time.Duration(0)
	if list, err := snapshot.List(dir); err == nil && len(list) > 0 {
		wait = untilNext(list[0].Time, time.Now(), every)
	}
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		limited, cancel := context.WithTimeout(ctx, snapshotTimeout)
		info, err := Take(limited, files, endpoint, dir, DefaultKeep)
		cancel()
		if wait = every; err != nil {
			wait = min(snapshotRetry, every)
			log.Warn("no snapshot was saved", "error", err)
			continue
		}
		log.Info("saved a snapshot", "file", info.File, "revision", info.Revision, "bytes", info.Size, "keys", info.Keys)
	}
}

// untilNext is how long to wait for the next snapshot after the last one. It is never more than the interval: the clock may have been ahead then, or is
// behind now, and a timer does not follow it when it is set right.
func untilNext(last, now time.Time, every time.Duration) time.Duration {
	return min(every, max(0, every-now.Sub(last)))
}

// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/phases/host"
)

// snapshotRetry is the delay after a failed snapshot: etcd may still be starting.
const snapshotRetry = time.Minute

// The log messages about each snapshot. Kept looks for them.
const (
	saved    = "saved a snapshot"
	notSaved = "no snapshot was saved"
)

// KeepSnapshots saves a snapshot after each interval, until ctx ends. A restart does not bring the next one forward.
func KeepSnapshots(ctx context.Context, files host.Files, endpoint, dir string, every time.Duration, log *slog.Logger) error {
	pause := time.Duration(0)
	if list, err := snapshot.List(dir); err == nil && len(list) > 0 {
		pause = untilNext(list[0].Time, time.Now(), every)
	}
	for wait.Sleep(ctx, pause) == nil {
		info, err := Take(ctx, files, endpoint, dir, DefaultKeep)
		if pause = every; err != nil {
			pause = min(snapshotRetry, every)
			log.Warn(notSaved, "error", err)
			continue
		}
		log.Info(saved, "file", info.File, "revision", info.Revision, "bytes", info.Size, "keys", info.Keys)
	}
	return nil
}

// untilNext returns how long to wait after the last snapshot. It never exceeds the interval: the clock may have been ahead then or be behind now, and
// a timer does not notice when it is corrected.
func untilNext(last, now time.Time, every time.Duration) time.Duration {
	return min(every, max(0, every-now.Sub(last)))
}

// Kept describes the snapshots of a control-plane node; nil if it saves none. log holds the last lines of its static pod.
func Kept(h *host.Host, log []string) *why.EtcdSnapshots {
	began, err := h.Files.Stat(manifestFile)
	if err != nil {
		return nil
	}
	out := &why.EtcdSnapshots{Since: began.ModTime().UTC()}
	if list, err := snapshot.List(h.Files.Path(Dir)); err == nil && len(list) > 0 {
		out.Last = list[0].Time
	}
	for _, line := range log {
		switch _, cause, _ := strings.Cut(line, "error="); {
		case strings.Contains(line, saved):
			out.Problem = ""
		case strings.Contains(line, notSaved):
			if text, err := strconv.Unquote(cause); err == nil {
				cause = text
			}
			out.Problem = cause
		}
	}
	return out
}

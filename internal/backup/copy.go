// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// Copy puts the databases of a cloud from one server into another, and compares every row. What the cloud had there under these names is
// replaced; the source is only read. Services must not run meanwhile.
func Copy(ctx context.Context, w Watcher, from, to *mysql.Admin, databases []string) (dump.Summary, error) {
	return copyInto(ctx, w, from, to, databases, func(d string) string { return d })
}

// CopyBeside fills scratch databases with those of a cloud as they are at one moment.
func CopyBeside(ctx context.Context, w Watcher, a *mysql.Admin, s *Scratch) (dump.Summary, error) {
	return copyPieces(ctx, w, a, a, s.names, s.Name)
}

func copyInto(ctx context.Context, w Watcher, from, to *mysql.Admin, databases []string, into func(string) string) (dump.Summary, error) {
	for _, d := range databases {
		if err := to.DropDatabase(ctx, into(d)); err != nil {
			return dump.Summary{}, err
		}
		if _, err := to.EnsureDatabase(ctx, nil, into(d)); err != nil {
			return dump.Summary{}, err
		}
	}
	return copyPieces(ctx, w, from, to, databases, into)
}

func copyPieces(ctx context.Context, w Watcher, from, to *mysql.Admin, databases []string, into func(string) string) (dump.Summary, error) {
	l, err := dump.NewLoader(ctx, to, into)
	if err != nil {
		return dump.Summary{}, err
	}
	defer l.Close()
	meter, err := dump.NewMeter(ctx, from, databases, onTables(w))
	if err != nil {
		return dump.Summary{}, err
	}
	want, err := dump.Dump(ctx, from, databases, meter.Over(func(p dump.Piece) error { return l.Load(ctx, p) }))
	if err != nil {
		return want, err
	}
	meter.End()
	if err := matches(ctx, w, to, want, databases, into); err != nil {
		return want, fmt.Errorf("comparing the copy: %w", err)
	}
	return want, l.Finish(ctx)
}

// matches compares databases that were loaded with what they were made from. Triggers and events do not exist yet: what they change does not count.
func matches(ctx context.Context, w Watcher, a *mysql.Admin, want dump.Summary, databases []string, into func(string) string) error {
	names := make([]string, len(databases))
	for i, d := range databases {
		names[i] = into(d)
	}
	w.Info("comparing every row")
	meter, err := dump.NewMeter(ctx, a, names, func(p dump.Progress) { w.Progress(p.Done, p.Total, inBytes) })
	if err != nil {
		return err
	}
	have, err := dump.Dump(ctx, a, names, meter.Piece)
	if err != nil {
		return err
	}
	meter.End()
	return differs(Same(want, have, into))
}

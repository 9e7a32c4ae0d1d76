// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// Copy copies the databases of a cloud from one server to another, and compares every row. It replaces what the cloud had there under these names; it
// only reads the source, and so refuses a target that is the same server. Services must not run meanwhile.
func Copy(ctx context.Context, w Watcher, from, to *mysql.Admin, databases []string) (dump.Summary, error) {
	to, release, err := Replacing(ctx, w, to)
	if err != nil {
		return dump.Summary{}, err
	}
	defer release()
	if err := to.Apart(ctx, from); err != nil {
		return dump.Summary{}, err
	}
	return copyInto(ctx, w, from, to, databases, func(d string) string { return d })
}

// CopyBeside fills scratch databases with those of a cloud as of one moment.
func CopyBeside(ctx context.Context, w Watcher, a *mysql.Admin, s *Scratch) (dump.Summary, error) {
	return copyPieces(ctx, w, a, a, s.names, s.Name)
}

// copyInto replaces databases of a cloud with copies.
func copyInto(ctx context.Context, w Watcher, from, to *mysql.Admin, databases []string, into func(string) string) (dump.Summary, error) {
	to, release, err := Replacing(ctx, w, to)
	if err != nil {
		return dump.Summary{}, err
	}
	defer release()
	if err := empty(ctx, to, lists.Map(databases, into)); err != nil {
		return dump.Summary{}, err
	}
	return copyPieces(ctx, w, from, to, databases, into)
}

// replacingPrefix is the prefix of the name of the lock for replacing the databases of a cloud.
const replacingPrefix = "ocadm_replace_"

// Replacing takes the lock for dropping and filling databases that a cloud uses: only one program at a time does that, and none that has lost the
// lock. The returned Admin does everything on the connection that holds the lock. An Admin that already holds it is reused.
func Replacing(ctx context.Context, w Watcher, a *mysql.Admin) (held *mysql.Admin, release func(), err error) {
	return a.Hold(ctx, replacingPrefix+digest([]byte(a.Owner().ID))[:8], func(holder string) {
		w.Info("waiting: %s replaces databases of this cloud", holder)
	})
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
	return want, finish(ctx, w, l)
}

func finish(ctx context.Context, w Watcher, l *dump.Loader) error {
	err := l.Finish(ctx)
	for _, v := range l.LeftOut {
		w.Info("left out %s, which uses something that does not exist", v)
	}
	return err
}

// matches compares databases that were loaded with their originals. It runs before triggers and events exist, so what those change does not count.
func matches(ctx context.Context, w Watcher, a *mysql.Admin, want dump.Summary, databases []string, into func(string) string) error {
	names := lists.Map(databases, into)
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

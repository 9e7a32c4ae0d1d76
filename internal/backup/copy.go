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
func Copy(ctx context.Context, from, to *mysql.Admin, databases []string) (dump.Summary, error) {
	return copyInto(ctx, from, to, databases, func(d string) string { return d })
}

// CopyBeside fills scratch databases with those of a cloud as they are at one moment.
func CopyBeside(ctx context.Context, a *mysql.Admin, s *Scratch) (dump.Summary, error) {
	return copyPieces(ctx, a, a, s.names, s.Name)
}

func copyInto(ctx context.Context, from, to *mysql.Admin, databases []string, into func(string) string) (dump.Summary, error) {
	for _, d := range databases {
		if err := to.DropDatabase(ctx, into(d)); err != nil {
			return dump.Summary{}, err
		}
		if _, err := to.EnsureDatabase(ctx, nil, into(d)); err != nil {
			return dump.Summary{}, err
		}
	}
	return copyPieces(ctx, from, to, databases, into)
}

func copyPieces(ctx context.Context, from, to *mysql.Admin, databases []string, into func(string) string) (dump.Summary, error) {
	l, err := dump.NewLoader(ctx, to, into)
	if err != nil {
		return dump.Summary{}, err
	}
	defer l.Close()
	want, err := dump.Dump(ctx, from, databases, func(p dump.Piece) error { return l.Load(ctx, p) })
	if err != nil {
		return want, err
	}
	if err := matches(ctx, to, want, databases, into); err != nil {
		return want, fmt.Errorf("comparing the copy: %w", err)
	}
	return want, l.Finish(ctx)
}

// matches compares databases that were loaded with what they were made from. Triggers and events do not exist yet: what they change does not count.
func matches(ctx context.Context, a *mysql.Admin, want dump.Summary, databases []string, into func(string) string) error {
	names := make([]string, len(databases))
	for i, d := range databases {
		names[i] = into(d)
	}
	have, err := dump.Examine(ctx, a, names)
	if err != nil {
		return err
	}
	return differs(Same(want, have, into))
}

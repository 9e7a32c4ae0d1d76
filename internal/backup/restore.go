// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// Contents is the contents of a backup, without its rows.
type Contents struct {
	Header   Header
	Manifest Manifest
	Objects  []Object
}

// Read reads a backup from beginning to end, checks it, and calls each, which may be nil, with the pieces of its databases.
func Read(ctx context.Context, r io.Reader, ids []age.Identity, each func(dump.Piece) error) (Contents, error) {
	in, err := Open(r, ids...)
	if err != nil {
		return Contents{}, err
	}
	defer in.Close()
	out := Contents{Header: in.Header}
	for {
		item, err := in.Next()
		if errors.Is(err, io.EOF) {
			out.Manifest = in.Manifest
			return out, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return out, err
		}
		if item.Object != nil {
			out.Objects = append(out.Objects, *item.Object)
		} else if each != nil {
			if err := each(*item.Piece); err != nil {
				return out, err
			}
		}
	}
}

// Verify reads a stored backup to its end and compares its checksum, if one is known.
func Verify(ctx context.Context, w Watcher, s Store, info Info, ids ...age.Identity) (Contents, error) {
	return verified(ctx, w, s, info, ids, nil)
}

func verified(ctx context.Context, w Watcher, s Store, info Info, ids []age.Identity, each func(dump.Piece) error) (Contents, error) {
	f, err := s.Open(ctx, info.Name)
	if err != nil {
		return Contents{}, err
	}
	defer f.Close()
	sum := sha256.New()
	in := &watched{Reader: io.TeeReader(f, sum), watcher: w, total: info.Size}
	out, err := Read(ctx, in, ids, each)
	if in.failed != nil {
		err = in.failed
	}
	if err != nil {
		return out, fmt.Errorf("reading backup %s: %w", info.Name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); info.SHA256 != "" && got != info.SHA256 {
		return out, fmt.Errorf("reading backup %s: %w: its SHA-256 is %s, not %s", info.Name, ErrDamaged, got, info.SHA256)
	}
	return out, nil
}

// Prove verifies a stored backup, restores its databases into scratch ones on the server, and compares their rows.
func Prove(ctx context.Context, w Watcher, s Store, info Info, a *mysql.Admin, ids ...age.Identity) (out Contents, err error) {
	databases := info.Databases
	if info.Unknown {
		if out, err = Verify(ctx, w, s, info, ids...); err != nil {
			return out, err
		}
		databases, info.Cloud = out.Header.Databases, out.Header.Cloud
	}
	// A server whose disk is full serves no requests. The existing databases are about as large as those in the file.
	size, err := a.CopySize(ctx, databases...)
	if err == nil {
		err = a.Fit(ctx, "restoring into scratch databases", size)
	}
	if err != nil {
		return out, err
	}
	return inScratch(ctx, w, s, info, Header{Cloud: info.Cloud, Databases: databases}, a, ids, false)
}

// Try reads and checks a backup again, as Verify does, and creates all that it holds, except rows, in scratch databases. Otherwise a restore would notice what
// the server refuses only when it has replaced the databases.
func Try(ctx context.Context, w Watcher, s Store, info Info, checked Contents, a *mysql.Admin, ids ...age.Identity) (Contents, error) {
	if err := fits(ctx, a, checked); err != nil {
		return checked, err
	}
	if have, err := Databases(ctx, a); err != nil {
		return checked, err
	} else if len(have) == 0 { // there is nothing to lose
		return Verify(ctx, w, s, info, ids...)
	}
	return inScratch(ctx, w, s, info, checked.Header, a, ids, true)
}

// inScratch restores the databases of a backup, whose header is h, into scratch ones.
func inScratch(ctx context.Context, w Watcher, s Store, info Info, h Header, a *mysql.Admin, ids []age.Identity, bare bool) (out Contents, err error) {
	scratch, err := NewScratch(ctx, a, h.Cloud.ID, h.Databases)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, scratch.Close(ctx)) }()
	return load(ctx, w, s, info, a, ids, scratch.Name, bare)
}

// load restores the databases of a backup into others, which must be empty, and compares them. If bare is true, it leaves out the rows.
func load(ctx context.Context, w Watcher, s Store, info Info, a *mysql.Admin, ids []age.Identity, into func(string) string, bare bool) (Contents, error) {
	l, err := dump.NewLoader(ctx, a, into)
	if err != nil {
		return Contents{}, err
	}
	defer l.Close()
	l.Bare = bare
	out, err := verified(ctx, w, s, info, ids, func(p dump.Piece) error { return l.Load(ctx, p) })
	if err == nil && !bare {
		err = matches(ctx, w, a, out.Manifest.Data, out.Header.Databases, into)
	}
	if err != nil {
		return out, err
	}
	return out, finish(ctx, w, l)
}

// RestoreDatabases replaces the databases of the cloud with those of a backup that Try has accepted. If interrupted, it must be run again.
// Services must not run meanwhile. The admin's owner must be the cloud of the backup.
func RestoreDatabases(ctx context.Context, w Watcher, s Store, info Info, checked Contents, a *mysql.Admin, ids ...age.Identity) (Contents, error) {
	a, release, err := Replacing(ctx, w, a)
	if err != nil {
		return checked, err
	}
	defer release()
	if err := empty(ctx, a, checked.Header.Databases); err != nil {
		return checked, err
	}
	return load(ctx, w, s, info, a, ids, func(d string) string { return d }, false)
}

// fits returns an error if the databases of a backup are known not to fit in place of the present ones. They take at least half the size of their
// statements, whose numbers, times and NULLs are longer than in a table: a restore that may fit must not be refused.
func fits(ctx context.Context, a *mysql.Admin, checked Contents) error {
	size, err := a.Size(ctx, checked.Header.Databases...)
	if err != nil {
		return err
	}
	for _, e := range checked.Manifest.Entries {
		if strings.HasPrefix(e.Name, databasesDir+"/") {
			size -= e.Size / 2
		}
	}
	return a.Fit(ctx, "restoring the databases", -size)
}

// Others returns the databases of a cloud that hold tables and are not in a backup, sorted.
func Others(ctx context.Context, a *mysql.Admin, saved []string) ([]string, error) {
	all, err := Databases(ctx, a)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range all {
		if slices.Contains(saved, d) {
			continue
		}
		tables, err := a.Tables(ctx, d)
		if err != nil {
			return nil, err
		}
		if len(tables) > 0 {
			out = append(out, d)
		}
	}
	return out, nil
}

// Empty deletes the contents of databases of the cloud. It keeps the databases, because the operator has noted that it created them; a running component fills its own again.
func Empty(ctx context.Context, w Watcher, a *mysql.Admin, databases []string) error {
	a, release, err := Replacing(ctx, w, a)
	if err != nil {
		return err
	}
	defer release()
	return empty(ctx, a, databases)
}

func empty(ctx context.Context, a *mysql.Admin, databases []string) error {
	for _, d := range databases {
		if err := a.DropDatabase(ctx, d); err != nil {
			return err
		}
		if _, err := a.EnsureDatabase(ctx, nil, d); err != nil {
			return err
		}
	}
	return nil
}

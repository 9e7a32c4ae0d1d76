// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"strings"

	driverpkg "github.com/go-sql-driver/mysql"
)

// Size returns the space that databases take, in bytes, as the server estimates it.
func (a *Admin) Size(ctx context.Context, databases ...string) (int64, error) {
	return a.sum(ctx, "DATA_LENGTH + INDEX_LENGTH", databases)
}

// smallestFile is the size of a table's file in bytes beyond the one page that the server reports for an empty table: seven pages in MySQL 8, four in
// MariaDB.
const smallestFile = 6 * 16 << 10

// CopySize returns the space that a copy of databases takes, in bytes. Small tables count more than in Size.
func (a *Admin) CopySize(ctx context.Context, databases ...string) (int64, error) {
	return a.sum(ctx, fmt.Sprintf("DATA_LENGTH + INDEX_LENGTH + %d", smallestFile), databases)
}

// sum adds up a column over the tables of databases. Databases that do not exist count as 0.
func (a *Admin) sum(ctx context.Context, column string, databases []string) (int64, error) {
	var total int64
	for _, name := range databases {
		err := query(ctx, a.cfg, a.db, "SELECT CAST(COALESCE(SUM("+column+"), 0) AS SIGNED) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?",
			[]any{name}, func(r *sql.Rows) error {
				var n int64
				err := r.Scan(&n)
				total += n
				return err
			})
		if err != nil {
			return 0, a.fail(fmt.Sprintf("reading the size of database %q", name), err, NoCreate)
		}
	}
	return total, nil
}

// Room is the free space where a server keeps its databases.
type Room struct {
	// Directory is the data directory, as the server names it.
	Directory string
	// Free is the free space there in bytes. If the server does not report it, Unknown is the reason.
	Free    int64
	Unknown string
	// Logged is true if a binary log in the same place also records everything that is written.
	Logged bool
}

// Takes returns how much of the room is used up by writing that many bytes.
func (r Room) Takes(bytes int64) int64 {
	if r.Logged {
		return 2 * bytes
	}
	return bytes
}

// Lacks reports whether that many bytes are known not to fit.
func (r Room) Lacks(bytes int64) bool { return r.Unknown == "" && r.Takes(bytes) > r.Free }

// unknownTable is the server's error number for a table of information_schema that no plugin provides.
const unknownTable = 1109

// Room reads how much free space the server has. MariaDB reports it if its plugin disks is loaded, to accounts with the FILE privilege; MySQL never
// does. A data directory that is a symbolic link is treated as a directory.
func (a *Admin) Room(ctx context.Context) (Room, error) {
	const op = "reading the free space"
	r := Room{}
	var log sql.NullString
	a.cfg.count("SELECT")
	if err := a.db.QueryRowContext(ctx, "SELECT @@datadir, @@log_bin_basename").Scan(&r.Directory, &log); err != nil {
		return r, a.fail(op, err, "")
	}
	if a.info.Flavour != MariaDB {
		r.Unknown = "MySQL does not report it"
		return r, nil
	}
	all, err := a.disks(ctx)
	if my, ok := errors.AsType[*driverpkg.MySQLError](err); ok && my.Number == unknownTable {
		r.Unknown = "the server reports it only with the plugin disks, which is not loaded"
		return r, nil
	}
	if err != nil {
		return r, a.fail(op, err, "")
	}
	at, known := diskOf(all, r.Directory)
	switch {
	case len(all) == 0:
		r.Unknown = "the server reports it only to accounts with the FILE privilege"
	case !known:
		r.Unknown = "the server does not list the disk of " + r.Directory
	default:
		r.Free = at.free
	}
	if logs, known := diskOf(all, log.String); log.String != "" && known {
		r.Logged = logs.path == at.path
	}
	return r, nil
}

// Fit returns an error if the server is known to lack room for that many bytes; op is what needs them.
func (a *Admin) Fit(ctx context.Context, op string, bytes int64) error {
	r, err := a.Room(ctx)
	if err != nil || !r.Lacks(bytes) {
		return err
	}
	return &Error{
		Class: Full, Op: op, Server: a.cfg.Addr(), User: a.cfg.User,
		Detail: fmt.Sprintf("%d MiB are free in %s, but %d MiB are needed", r.Free>>20, r.Directory, r.Takes(bytes)>>20),
	}
}

// disk is a file system on the server, with its free space in bytes.
type disk struct {
	path string
	free int64
}

func (a *Admin) disks(ctx context.Context) ([]disk, error) {
	var out []disk
	err := query(ctx, a.cfg, a.db, "SELECT Path, Available * 1024 FROM information_schema.DISKS", nil, func(r *sql.Rows) error {
		d := disk{}
		err := r.Scan(&d.path, &d.free)
		out = append(out, d)
		return err
	})
	return out, err
}

// diskOf returns the file system that holds a file: the innermost of those mounted above it, and of two at the same mount point, the later one, which hides the other.
func diskOf(all []disk, file string) (found disk, known bool) {
	file = path.Clean(file) + "/"
	for _, d := range all {
		if at := strings.TrimSuffix(path.Clean(d.path), "/") + "/"; strings.HasPrefix(file, at) && len(d.path) >= len(found.path) {
			found, known = d, true
		}
	}
	return found, known
}

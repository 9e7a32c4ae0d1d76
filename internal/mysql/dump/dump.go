// SPDX-License-Identifier: Apache-2.0

// Package dump copies databases out of and into a server: tables, rows, sequences, routines, views, triggers and events, as SQL that other clients
// understand too. All rows are from the same moment. It computes a checksum of each table's rows on the way, and can compute it again later.
package dump

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
)

// ErrSchemaChanged is the error of a dump during which a table was created, altered, truncated or dropped. Another attempt may succeed.
var ErrSchemaChanged = errors.New("a table was changed during the dump")

// Kind is the kind of object that a Piece creates.
type Kind string

// The kinds, in the order in which they are loaded.
const (
	Database Kind = "database"
	Sequence Kind = "sequence"
	Table    Kind = "table"
	Rows     Kind = "rows"
	Routine  Kind = "routine"
	View     Kind = "view"
	Trigger  Kind = "trigger"
	Event    Kind = "event"
)

// Piece is a part of a dump: one statement, or for Rows one INSERT per line.
type Piece struct {
	Database string
	Kind     Kind
	// Name is the name of the object; a procedure and a function of the same name are two pieces.
	Name string
	// Setup holds statements that prepare the session, such as the sql_mode of a routine.
	Setup []string
	SQL   []byte
}

// Summary is a summary of a dump.
type Summary struct {
	Databases []DatabaseSummary `json:"databases"`
}

// DatabaseSummary is a summary of one database in a dump.
type DatabaseSummary struct {
	Name   string         `json:"name"`
	Tables []TableSummary `json:"tables"`
	// Others is the number of sequences, routines, views, triggers and events.
	Others int `json:"others,omitempty"`
}

// TableSummary counts a table's rows. Two tables with the same checksum have the same rows, in any order.
type TableSummary struct {
	Name     string `json:"name"`
	Rows     int64  `json:"rows"`
	Checksum string `json:"checksum"`
	// Loose is true if the engine has no snapshots: rows that were written meanwhile may be missing.
	Loose bool `json:"loose,omitempty"`
}

// Count returns the total numbers of tables and rows.
func (s Summary) Count() (tables int, rows int64) {
	for _, d := range s.Databases {
		tables += len(d.Tables)
		for _, t := range d.Tables {
			rows += t.Rows
		}
	}
	return tables, rows
}

func (s Summary) String() string {
	tables, rows := s.Count()
	return fmt.Sprintf("%s with %s and %s", lists.Counted(len(s.Databases), "database"), lists.Counted(tables, "table"), lists.Counted(rows, "row"))
}

// Tables returns the tables by DATABASE.TABLE. The databases of clouds have no dots in their names.
func (s Summary) Tables() map[string]TableSummary {
	out := map[string]TableSummary{}
	for _, d := range s.Databases {
		for _, t := range d.Tables {
			out[d.Name+"."+t.Name] = t
		}
	}
	return out
}

// Dump reads databases as of one moment and calls emit with each piece, whose contents are valid until emit returns.
func Dump(ctx context.Context, a *mysql.Admin, databases []string, emit func(Piece) error) (Summary, error) {
	return readAt(ctx, a, databases, emit, nil)
}

// At dumps databases of a MariaDB server with a binary log, and returns the GTID of the last event that the dump includes, such as 0-1-42.
func At(ctx context.Context, a *mysql.Admin, databases []string, emit func(Piece) error) (sum Summary, gtid string, err error) {
	sum, err = readAt(ctx, a, databases, emit, func(s *session) error {
		status, err := s.record(ctx, "SELECT BINLOG_GTID_POS(f.VARIABLE_VALUE, p.VARIABLE_VALUE) AS gtid FROM information_schema.SESSION_STATUS f, "+
			"information_schema.SESSION_STATUS p WHERE f.VARIABLE_NAME = 'BINLOG_SNAPSHOT_FILE' AND p.VARIABLE_NAME = 'BINLOG_SNAPSHOT_POSITION'")
		gtid = status["gtid"]
		return err
	})
	return sum, gtid, err
}

// Examine computes the summary of databases as they are now.
func Examine(ctx context.Context, a *mysql.Admin, databases []string) (Summary, error) {
	return readAt(ctx, a, databases, nil, nil)
}

// readAt calls began, which may be nil, once the snapshot is taken.
func readAt(ctx context.Context, a *mysql.Admin, databases []string, emit func(Piece) error, began func(*session) error) (Summary, error) {
	var sum Summary
	s, err := newSession(ctx, a, readSession...)
	if err != nil {
		return sum, err
	}
	defer s.close()
	// With its binary log, MariaDB keeps the locks of tables until the end of a transaction that may be logged. The account may lack the privilege.
	_ = s.exec(ctx, "SET SESSION sql_log_bin = 0")
	databases = slices.Sorted(slices.Values(databases))
	before, err := s.schemas(ctx, databases)
	if err != nil {
		return sum, err
	}
	if err := s.exec(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return sum, a.Fail("taking a snapshot of the databases", err)
	}
	if began != nil {
		if err := began(s); err != nil {
			return sum, a.Fail("reading where the snapshot is in the binary log", err)
		}
	}
	for _, db := range before {
		one, err := s.database(ctx, db, emit)
		if err != nil {
			return sum, fmt.Errorf("dumping database %q: %w", db.name, err)
		}
		sum.Databases = append(sum.Databases, one)
	}
	if err := s.exec(ctx, "ROLLBACK"); err != nil { // otherwise MySQL would read the definitions below from the snapshot
		return sum, a.Fail("ending the snapshot of the databases", err)
	}
	after, err := s.schemas(ctx, databases)
	if err != nil {
		return sum, err
	}
	if i := slices.IndexFunc(before, func(d schema) bool { return !slices.ContainsFunc(after, d.same) }); i >= 0 {
		return sum, fmt.Errorf("dumping database %q: %w", before[i].name, ErrSchemaChanged)
	}
	return sum, nil
}

// readSession makes characters and types come back as they are stored, times in UTC, and statements quoted in one way. A server may ignore the character
// set that a client names when it connects; one of three bytes would turn emoji into question marks, in the comparison, too. Tables that a dump has read
// cannot be dropped before it ends, so wait_timeout makes the server end a dump whose machine is gone. What receives the rows may be as slow.
var readSession = []string{
	"SET NAMES utf8mb4", "SET SESSION wait_timeout = 1800", "SET SESSION net_write_timeout = 1800",
	"SET SESSION sql_mode = ''", "SET SESSION time_zone = '+00:00'", "SET SESSION sql_quote_show_create = 1",
	"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
}

// session is a connection that keeps its settings. A session that only writes may use the connection of a lock; conn is nil then.
type session struct {
	admin *mysql.Admin
	conn  *sql.Conn
}

func newSession(ctx context.Context, a *mysql.Admin, setup ...string) (*session, error) {
	c, err := a.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{admin: a, conn: c}
	return s, s.prepare(ctx, setup)
}

// loadSession returns a session that only writes. A connection of its own waits until all rows are compared, for as long as a step may take.
func loadSession(ctx context.Context, a *mysql.Admin, setup ...string) (*session, error) {
	if !a.Holds() {
		return newSession(ctx, a, append([]string{"SET SESSION wait_timeout = 28800"}, setup...)...)
	}
	s := &session{admin: a}
	return s, s.prepare(ctx, setup)
}

// unlimited lets statements take as long as a large table needs, and a dump wait for a slow destination, also on a server that ends those of services early.
func unlimited(a *mysql.Admin) string {
	if a.ServerInfo().Flavour == mysql.MariaDB {
		return "SET SESSION max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0"
	}
	return "SET SESSION max_execution_time = 0"
}

func (s *session) prepare(ctx context.Context, setup []string) error {
	for _, q := range append([]string{unlimited(s.admin)}, setup...) {
		if err := s.exec(ctx, q); err != nil {
			s.close()
			return s.admin.Fail("preparing the session", err)
		}
	}
	return nil
}

// close closes the connection itself, because its settings must not reach the next user of the pool. The connection of a lock is closed with the lock.
func (s *session) close() {
	if s.conn == nil {
		return
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

func (s *session) exec(ctx context.Context, statement string) error {
	if s.conn == nil {
		return s.admin.Exec(ctx, statement)
	}
	_, err := s.conn.ExecContext(ctx, statement)
	return err
}

// rows runs a query and calls each with the row's columns by position; NULL is nil. The values are valid until each returns.
func (s *session) rows(ctx context.Context, statement string, args []any, each func([]sql.RawBytes) error) error {
	rows, err := s.conn.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := each(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

// record runs a query of one row and returns its columns by name.
func (s *session) record(ctx context.Context, statement string) (map[string]string, error) {
	rows, err := s.conn.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	return mysql.Record(rows)
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

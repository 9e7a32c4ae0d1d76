// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
)

// Loader loads the pieces of a dump into databases that exist and are empty.
type Loader struct {
	s *session
	// into maps a dumped database to the one it is loaded into.
	into    func(database string) string
	current string
	later   []Piece
	limit   int64
	// Bare leaves out the rows, but not those that are too long for the server.
	Bare bool
	// LeftOut lists the views that Finish did not create because something that they use does not exist. They are as useless in the original.
	LeftOut []string
}

// lacking lists the server's numbers for a view that uses a database, column, table or function that does not exist, or another such view.
var lacking = []uint16{1049, 1054, noSuchTable, 1305, 1356}

// writeSession turns checks off, since tables and rows come in any order, and stores values as they are.
var writeSession = []string{
	"SET NAMES utf8mb4", "SET SESSION time_zone = '+00:00'", "SET SESSION foreign_key_checks = 0", "SET SESSION unique_checks = 0", loadMode,
}

// lenient makes the server accept tables and rows that it refuses or changes otherwise, although it has some. It is tried: settings depend on the server,
// and some need a privilege.
var lenient = []string{
	"SET SESSION innodb_strict_mode = 0", "SET SESSION check_constraint_checks = 0", "SET SESSION sql_require_primary_key = 0",
	"SET SESSION sql_generate_invisible_primary_key = 0", "SET SESSION explicit_defaults_for_timestamp = 1",
}

const loadMode = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'"

// NewLoader starts a session. The caller must close it. If the Admin holds a lock, it loads over the connection that holds it.
func NewLoader(ctx context.Context, a *mysql.Admin, into func(database string) string) (*Loader, error) {
	s, err := loadSession(ctx, a, writeSession...)
	if err != nil {
		return nil, err
	}
	for _, q := range lenient {
		_ = s.exec(ctx, q)
	}
	return &Loader{s: s, into: into, limit: a.ServerInfo().MaxAllowedPacket}, nil
}

func (l *Loader) Close() { l.s.close() }

// Load loads sequences, tables and rows. The objects that depend on them wait for Finish.
func (l *Loader) Load(ctx context.Context, p Piece) error {
	switch p.Kind {
	case Database:
		return l.database(ctx, p)
	case Sequence, Table, Rows:
	default:
		p.SQL = bytes.Clone(p.SQL)
		if p.Kind == Event {
			p.SQL = placed(p.SQL, p.Database, l.into(p.Database))
		}
		l.later = append(l.later, p)
		return nil
	}
	op := fmt.Sprintf("loading the %s %q of database %q", p.Kind, p.Name, p.Database)
	if p.Kind == Rows {
		op = fmt.Sprintf("loading rows into table %q of database %q", p.Name, p.Database)
	}
	if err := l.use(ctx, p.Database); err != nil {
		return l.s.admin.Fail(op, err)
	}
	if p.Kind != Rows {
		return l.run(ctx, op, p.Kind, p.SQL)
	}
	for line := range bytes.Lines(p.SQL) {
		if err := l.run(ctx, op, Rows, bytes.TrimSuffix(line, []byte(";\n"))); err != nil {
			return err
		}
	}
	return nil
}

// charset matches the default character set of a database. The caller of the restore has already created the database and marked it as the cloud's.
var charset = regexp.MustCompile(`DEFAULT (CHARACTER SET [A-Za-z0-9_]+)( COLLATE [A-Za-z0-9_]+)?`)

// database sets the defaults of a database. The collations of MySQL and MariaDB differ, and each has its own default. Tables name theirs, so that the
// default is not worth a failure.
func (l *Loader) database(ctx context.Context, p Piece) error {
	m := charset.FindSubmatch(p.SQL)
	if m == nil {
		return nil
	}
	alter := "ALTER DATABASE " + quote(l.into(p.Database)) + " " + string(m[1])
	err := l.s.exec(ctx, alter+string(m[2]))
	if mysql.UnknownCollation(err) {
		err = l.s.exec(ctx, alter)
	}
	if err != nil {
		return l.s.admin.Fail(fmt.Sprintf("setting the character set of database %q", l.into(p.Database)), err)
	}
	return nil
}

func (l *Loader) use(ctx context.Context, database string) error {
	if l.current == database {
		return nil
	}
	l.current = ""
	if err := l.s.exec(ctx, "USE "+quote(l.into(database))); err != nil {
		return err
	}
	l.current = database
	return nil
}

func (l *Loader) run(ctx context.Context, op string, kind Kind, statement []byte) error {
	if l.limit > 0 && int64(len(statement)) >= l.limit {
		return l.s.admin.Fail(op, &driver.MySQLError{Number: 1153, Message: fmt.Sprintf("a row has %d bytes, and the server accepts %d", len(statement), l.limit)})
	}
	if l.Bare && kind == Rows {
		return nil
	}
	if err := l.s.exec(ctx, string(statement)); err != nil {
		return l.s.admin.Fail(op, err)
	}
	return nil
}

// Finish creates routines, views, triggers and events. A view that needs another view is created after it.
func (l *Loader) Finish(ctx context.Context) error {
	for _, kind := range []Kind{Routine, View, Trigger, Event} {
		left := lists.Filter(l.later, func(p Piece) bool { return p.Kind == kind })
		for len(left) > 0 {
			var failed []Piece
			var first error
			for _, p := range left {
				err := l.make(ctx, p)
				if err == nil {
					continue
				}
				failed = append(failed, p)
				my, ok := errors.AsType[*driver.MySQLError](err)
				if invalid := kind == View && ok && slices.Contains(lacking, my.Number); !invalid && first == nil {
					first = l.s.admin.Fail(fmt.Sprintf("creating the %s %q of database %q", p.Kind, p.Name, p.Database), err)
				}
			}
			stuck := len(failed) == len(left)
			if first != nil && (kind != View || stuck) {
				return first
			}
			if left = failed; stuck {
				for _, p := range failed {
					l.LeftOut = append(l.LeftOut, fmt.Sprintf("view %q of database %q", p.Name, p.Database))
				}
				break
			}
		}
	}
	return nil
}

// definer matches the account that a program runs as, and the words that make a view run as that account. Only some administrators may set another one
// than themselves.
var definer = regexp.MustCompile("^CREATE ((?:OR REPLACE )?(?:ALGORITHM=[A-Z]+ )?)DEFINER=(`(?:[^`]|``)*`|'(?:[^']|'')*'|[^ @]+)" +
	"(?:@(?:`(?:[^`]|``)*`|'(?:[^']|'')*'|[^ ]+))? (SQL SECURITY DEFINER )?")

// ownable returns the statement that creates an object for an administrator who may not set its definer, "" if there is none. What a service has
// written must not get the administrator's privileges: a view then runs as the account that uses it, and programs are refused.
func (l *Loader) ownable(p Piece) string {
	m := definer.FindSubmatch(p.SQL)
	admins := m != nil && l.s.admin.Administers(strings.Trim(string(m[2]), "`'"))
	if m == nil || !admins && p.Kind != View {
		return ""
	}
	head, rest := "CREATE "+string(m[1]), string(p.SQL[len(m[0]):])
	if admins {
		return head + string(m[3]) + rest
	}
	return head + "SQL SECURITY INVOKER " + strings.TrimPrefix(rest, "SQL SECURITY INVOKER ")
}

const needsSuper = 1227

func (l *Loader) make(ctx context.Context, p Piece) error {
	if err := l.use(ctx, p.Database); err != nil {
		return err
	}
	for _, s := range slices.Concat([]string{loadMode}, p.Setup) {
		if l.s.admin.ServerInfo().Flavour == mysql.MySQL { // the other product has this mode by default
			s = strings.NewReplacer("NO_AUTO_CREATE_USER,", "", ",NO_AUTO_CREATE_USER", "").Replace(s)
		}
		if err := l.s.exec(ctx, s); err != nil && !mysql.UnknownCollation(err) { // literals get that of this session
			return err
		}
	}
	err := l.s.exec(ctx, string(p.SQL))
	if my, ok := errors.AsType[*driver.MySQLError](err); ok && my.Number == needsSuper && l.ownable(p) != "" {
		err = l.s.exec(ctx, l.ownable(p))
	}
	for _, s := range writeSession {
		if back := l.s.exec(ctx, s); err == nil {
			err = back
		}
	}
	return err
}

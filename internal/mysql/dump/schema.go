// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	driver "github.com/go-sql-driver/mysql"
)

// schema holds the definitions of a database, without rows.
type schema struct {
	name, create string
	// tables are sorted by name.
	tables []table
	// sequences come before the tables, whose columns may take their defaults from them.
	sequences, others []Piece
}

// same reports whether two schemas are equal apart from rows and counters.
func (d schema) same(o schema) bool {
	return d.name == o.name && d.create == o.create &&
		slices.EqualFunc(d.tables, o.tables, func(a, b table) bool {
			return a.name == b.name && withoutCounter(a.create) == withoutCounter(b.create)
		}) &&
		slices.EqualFunc(d.sequences, o.sequences, func(a, b Piece) bool { return a.Name == b.Name }) &&
		slices.EqualFunc(d.others, o.others, func(a, b Piece) bool {
			return a.Kind == b.Kind && a.Name == b.Name && string(a.SQL) == string(b.SQL)
		})
}

// counter matches the table option that appears after the first row.
var counter = regexp.MustCompile(`(\n\) .*?) AUTO_INCREMENT=[0-9]+`)

func withoutCounter(create string) string { return counter.ReplaceAllString(create, "$1") }

type table struct {
	name, create string
	columns      []column
	// loose is true if the engine has no snapshots.
	loose bool
}

type column struct {
	name string
	form form
}

// form is the way a value is written.
type form int

const (
	text form = iota
	number
	// The server shows fewer digits of a float than it stores, unless it is converted to a double.
	float
	binary
)

var forms = map[string]form{
	"tinyint": number, "smallint": number, "mediumint": number, "int": number, "bigint": number, "decimal": number, "double": number, "year": number,
	"float": float, "bit": binary, "binary": binary, "varbinary": binary, "tinyblob": binary, "blob": binary, "mediumblob": binary, "longblob": binary,
	"geometry": binary, "point": binary, "linestring": binary, "polygon": binary, "multipoint": binary, "multilinestring": binary,
	"multipolygon": binary, "geometrycollection": binary, "geomcollection": binary, "vector": binary,
}

// vanished lists the server's numbers for a table, routine, trigger or event that was dropped after it was listed.
var vanished = []uint16{noSuchTable, 1305, 1360, 1539}

func (s *session) schemas(ctx context.Context, databases []string) ([]schema, error) {
	var out []schema
	for _, name := range databases {
		d, err := s.schema(ctx, name)
		if err != nil {
			failed := s.admin.Fail(fmt.Sprintf("reading the schema of database %q", name), err)
			if my, ok := errors.AsType[*driver.MySQLError](err); ok && slices.Contains(vanished, my.Number) {
				return nil, fmt.Errorf("%w: %w", ErrSchemaChanged, failed)
			}
			return nil, failed
		}
		out = append(out, d)
	}
	return out, nil
}

// schema reads the definitions of a database. It makes the database the current one, so that definitions of views do not name it.
func (s *session) schema(ctx context.Context, name string) (schema, error) {
	d := schema{name: name}
	if err := s.exec(ctx, "USE "+quote(name)); err != nil {
		return d, err
	}
	r, err := s.record(ctx, "SHOW CREATE DATABASE "+quote(name))
	if err != nil {
		return d, err
	}
	d.create = r["create database"]
	columns, err := s.columns(ctx, name)
	if err != nil {
		return d, err
	}
	kinds, engines := map[string]string{}, map[string]string{}
	err = s.rows(ctx, "SELECT TABLE_NAME, TABLE_TYPE, COALESCE(ENGINE, '') FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", []any{name},
		func(v []sql.RawBytes) error {
			kinds[string(v[0])], engines[string(v[0])] = string(v[1]), string(v[2])
			return nil
		})
	if err != nil {
		return d, err
	}
	own := sequenceOf(name)
	for _, t := range slices.Sorted(maps.Keys(kinds)) {
		switch kinds[t] {
		case "VIEW", "SYSTEM VIEW":
			err = s.view(ctx, &d, t)
		case "SEQUENCE":
			err = s.sequence(ctx, &d, t)
		case "SYSTEM VERSIONED": // a select reads the present rows only, in a comparison, too
			err = fmt.Errorf("table %q keeps the history of its rows (WITH SYSTEM VERSIONING), which a copy would lose: ALTER TABLE … DROP SYSTEM VERSIONING", t)
		default:
			if r, err = s.record(ctx, "SHOW CREATE TABLE "+quote(t)); err == nil {
				create := own.ReplaceAllString(r["create table"], "$1")
				d.tables = append(d.tables, table{name: t, create: create, columns: columns[t], loose: !strings.EqualFold(engines[t], "InnoDB")})
			}
		}
		if err != nil {
			return d, err
		}
	}
	return d, s.programs(ctx, &d)
}

// columns returns, by table, the columns that hold values of their own, which excludes generated ones.
func (s *session) columns(ctx context.Context, database string) (map[string][]column, error) {
	out := map[string][]column{}
	err := s.rows(ctx, "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, EXTRA, COALESCE(GENERATION_EXPRESSION, '') FROM information_schema.COLUMNS "+
		"WHERE TABLE_SCHEMA = ? ORDER BY TABLE_NAME, ORDINAL_POSITION", []any{database}, func(v []sql.RawBytes) error {
		extra := strings.ToUpper(string(v[3]))
		if len(v[4]) > 0 || strings.Contains(extra, "VIRTUAL") || strings.Contains(extra, "STORED") || strings.Contains(extra, "PERSISTENT") {
			return nil
		}
		t := string(v[0])
		out[t] = append(out[t], column{name: string(v[1]), form: forms[strings.ToLower(string(v[2]))]})
		return nil
	})
	return out, err
}

func (s *session) view(ctx context.Context, d *schema, name string) error {
	r, err := s.record(ctx, "SHOW CREATE VIEW "+quote(name))
	if err != nil {
		return err
	}
	d.others = append(d.others, Piece{Database: d.name, Kind: View, Name: name, Setup: setup(r), SQL: []byte(r["create view"])})
	return nil
}

// sequenceOf matches a default that a sequence of the database provides. Unlike other names, the server always qualifies it, so that a copy would count
// with the sequence of the original, and could not be created without it.
func sequenceOf(database string) *regexp.Regexp {
	return regexp.MustCompile("\\b((?:nextval|lastval)\\()" + regexp.QuoteMeta(quote(database)) + `\.`)
}

func (s *session) sequence(ctx context.Context, d *schema, name string) error {
	r, err := s.record(ctx, "SHOW CREATE SEQUENCE "+quote(name))
	if err != nil {
		return err
	}
	next, err := s.record(ctx, "SELECT next_not_cached_value AS n FROM "+quote(name))
	if err != nil {
		return err
	}
	d.sequences = append(d.sequences, Piece{Database: d.name, Kind: Sequence, Name: name, SQL: []byte(r["create table"])},
		Piece{Database: d.name, Kind: Sequence, Name: name + " next", SQL: fmt.Appendf(nil, "ALTER SEQUENCE %s RESTART %s", quote(name), next["n"])})
	return nil
}

// programs reads the stored programs: procedures, functions, packages of MariaDB, triggers and events.
func (s *session) programs(ctx context.Context, d *schema) error {
	const routines = "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = ? AND ROUTINE_TYPE = "
	for _, p := range []struct{ kind, list, column, show string }{
		{string(Routine), routines + "'PROCEDURE' ORDER BY 1", "create procedure", "SHOW CREATE PROCEDURE "},
		{string(Routine), routines + "'FUNCTION' ORDER BY 1", "create function", "SHOW CREATE FUNCTION "},
		{string(Routine), routines + "'PACKAGE' ORDER BY 1", "create package", "SHOW CREATE PACKAGE "},
		{string(Routine), routines + "'PACKAGE BODY' ORDER BY 1", "create package body", "SHOW CREATE PACKAGE BODY "},
		{string(Trigger), "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = ? ORDER BY EVENT_OBJECT_TABLE, ACTION_TIMING, " +
			"EVENT_MANIPULATION, ACTION_ORDER", "sql original statement", "SHOW CREATE TRIGGER "},
		{string(Event), "SELECT EVENT_NAME FROM information_schema.EVENTS WHERE EVENT_SCHEMA = ? ORDER BY 1", "create event", "SHOW CREATE EVENT "},
	} {
		var names []string
		err := s.rows(ctx, p.list, []any{d.name}, func(v []sql.RawBytes) error {
			names = append(names, string(v[0]))
			return nil
		})
		if err != nil {
			return err
		}
		for _, n := range names {
			r, err := s.record(ctx, p.show+quote(n))
			if err != nil {
				return err
			}
			if r[p.column] == "" {
				return fmt.Errorf("the account lacks the privilege to read the definition of %s %q", p.kind, n)
			}
			name := n
			if kind := strings.TrimPrefix(p.column, "create "); p.kind == string(Routine) && kind != "procedure" {
				name += " " + kind
			}
			d.others = append(d.others, Piece{Database: d.name, Kind: Kind(p.kind), Name: name, Setup: setup(r), SQL: []byte(unqualified(r[p.column]))})
		}
	}
	return nil
}

// trigger matches the head of a trigger. The server keeps it as it was typed, including the name of the database if that was typed.
var trigger = func() *regexp.Regexp {
	const name = "(?:`(?:[^`]|``)*`|[^\\s.`]+)"
	return regexp.MustCompile(`(?is)^(CREATE\s+(?:OR\s+REPLACE\s+)?(?:DEFINER\s*=\s*\S+\s+)?TRIGGER\s+(?:IF\s+NOT\s+EXISTS\s+)?)(?:` + name + `\s*\.\s*)?(` + name +
		`\s+(?:BEFORE|AFTER)\s+(?:INSERT|UPDATE|DELETE)\s+ON\s+)(?:` + name + `\s*\.\s*)?`)
}()

// unqualified removes the database from the names of a trigger and its table, so that the trigger can be created in another one.
func unqualified(create string) string { return trigger.ReplaceAllString(create, "$1$2") }

// settings lists the session variables that a program or view was created under, with the column that shows each.
var settings = []struct{ column, variable string }{
	{"sql_mode", "sql_mode"}, {"character_set_client", "character_set_client"}, {"collation_connection", "collation_connection"}, {"time_zone", "time_zone"},
}

// setup returns the statements that restore the settings a program was created under. The text itself is in utf8mb4.
func setup(record map[string]string) []string {
	var out []string
	for _, x := range settings {
		value, known := record[x.column]
		if !known || x.variable == "character_set_client" {
			continue
		}
		if x.variable != "sql_mode" && !plain.MatchString(value) {
			continue
		}
		out = append(out, "SET SESSION "+x.variable+" = '"+strings.ReplaceAll(value, "'", "''")+"'")
	}
	return out
}

// plain matches names of collations and time zones.
var plain = regexp.MustCompile(`^[A-Za-z0-9_+:/-]+$`)

// SPDX-License-Identifier: Apache-2.0

// Package rest keeps the records of a stand-in in its MariaDB database: one table per kind of record, with a JSON body in each row. The real services
// have proper schemas; what matters here is that the account, the database and its persistence are real.
package rest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/test/fakecloud/schema"
)

// ErrNotInSync is the services' own message for a database without its tables, and for an unreachable one.
var ErrNotInSync = errors.New("database schema not in sync!")

var (
	ErrNotFound  = errors.New("not found")
	ErrDuplicate = errors.New("duplicate")
)

// Record is one object. "id" and "name" are also columns.
type Record map[string]any

// Text returns a field as a string, empty if it is absent.
func (r Record) Text(key string) string {
	switch value := r[key].(type) {
	case nil:
		return ""
	case string:
		return value
	default:
		return fmt.Sprint(value)
	}
}

// True reports whether a field is true or "true".
func (r Record) True(key string) bool { return r.Text(key) == "true" }

// Store is an open database.
type Store struct{ db *sql.DB }

// Open connects to the database. It creates nothing.
func Open(ctx context.Context, dsn string) (*Store, error) {
	c, err := ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("reading sql_connection: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(2)
	db.SetConnMaxLifetime(5 * time.Minute)
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, fmt.Errorf("%w (%w)", ErrNotInSync, err)
	}
	return &Store{db}, nil
}

func (s *Store) Close() error { return s.db.Close() }

// Sync creates missing tables.
func (s *Store) Sync(ctx context.Context, tables []string) error {
	for _, table := range tables {
		statement := "CREATE TABLE IF NOT EXISTS `" + table + "` (id VARCHAR(64) NOT NULL PRIMARY KEY, name VARCHAR(255) NOT NULL, " +
			"uniq VARCHAR(255) NULL UNIQUE, body LONGTEXT NOT NULL, created_at DATETIME(6) NOT NULL, KEY (name)) " +
			"ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("creating table %s: %w", table, err)
		}
	}
	return nil
}

// InSync returns ErrNotInSync if a table is missing.
func (s *Store) InSync(ctx context.Context, tables []string) error {
	rows, err := s.db.QueryContext(ctx, "SHOW TABLES")
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrNotInSync, err)
	}
	defer rows.Close()
	var have []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return fmt.Errorf("listing tables: %w", err)
		}
		have = append(have, name)
	}
	for _, table := range tables {
		if !slices.Contains(have, table) {
			return fmt.Errorf("%w (table %s is missing)", ErrNotInSync, table)
		}
	}
	return rows.Err()
}

// Migrate migrates the tables of a service to a version; see package schema.
func (s *Store) Migrate(ctx context.Context, service, version string, halfway bool) error {
	return schema.Migrate(ctx, s.db, service, version, halfway)
}

// Defined returns ErrNotInSync if tables differ from their definition.
func (s *Store) Defined(ctx context.Context, tables []schema.Table) error {
	if err := schema.Check(ctx, s.db, tables); err != nil {
		return fmt.Errorf("%w (%w)", ErrNotInSync, err)
	}
	return nil
}

// Insert adds a record and returns it with its id. uniq, unless empty, must not exist in the table.
func (s *Store) Insert(ctx context.Context, table string, r Record, uniq string) (Record, error) {
	r = maps.Clone(r)
	now := time.Now().UTC()
	if r.Text("id") == "" {
		r["id"] = NewID()
	}
	if r.Text("name") == "" {
		r["name"] = r["id"]
	}
	r["created_at"] = now.Format(time.RFC3339)
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding record: %w", err)
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO `"+table+"` (id, name, uniq, body, created_at) VALUES (?, ?, ?, ?, ?)",
		r.Text("id"), r.Text("name"), sql.NullString{String: uniq, Valid: uniq != ""}, body, now)
	if mysqlErr := (*mysql.MySQLError)(nil); errors.As(err, &mysqlErr) && mysqlErr.Number == 1062 {
		return nil, fmt.Errorf("%s %q: %w", table, r.Text("name"), ErrDuplicate)
	}
	if err != nil {
		return nil, fmt.Errorf("inserting into %s: %w", table, err)
	}
	return r, nil
}

// Get finds a record by its id or by its name.
func (s *Store) Get(ctx context.Context, table, key string) (Record, error) {
	row := s.db.QueryRowContext(ctx, "SELECT body FROM `"+table+"` WHERE id = ? OR name = ? ORDER BY id = ? DESC LIMIT 1", key, key, key)
	var body []byte
	if err := row.Scan(&body); errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%s %q: %w", table, key, ErrNotFound)
	} else if err != nil {
		return nil, fmt.Errorf("reading %s %q: %w", table, key, err)
	}
	return decodeRecord(body)
}

// List returns all records of a table in the order of their creation.
func (s *Store) List(ctx context.Context, table string) ([]Record, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT body FROM `"+table+"` ORDER BY created_at, id")
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", table, err)
	}
	defer rows.Close()
	records := []Record{}
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return nil, fmt.Errorf("listing %s: %w", table, err)
		}
		r, err := decodeRecord(body)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, rows.Err()
}

// Update replaces fields of a record.
func (s *Store) Update(ctx context.Context, table string, r, changes Record) (Record, error) {
	r = maps.Clone(r)
	maps.Copy(r, changes)
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding record: %w", err)
	}
	if _, err := s.db.ExecContext(ctx, "UPDATE `"+table+"` SET body = ?, name = ? WHERE id = ?", body, r.Text("name"), r.Text("id")); err != nil {
		return nil, fmt.Errorf("updating %s %q: %w", table, r.Text("id"), err)
	}
	return r, nil
}

// Delete removes a record by its id.
func (s *Store) Delete(ctx context.Context, table, id string) error {
	if _, err := s.db.ExecContext(ctx, "DELETE FROM `"+table+"` WHERE id = ?", id); err != nil {
		return fmt.Errorf("deleting %s %q: %w", table, id, err)
	}
	return nil
}

// NewID generates an identifier as the services do: 32 hexadecimal digits.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x", b)
}

func decodeRecord(body []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("decoding record: %w", err)
	}
	return r, nil
}

// ParseDSN parses "mysql+pymysql://USER:PASSWORD@HOST:PORT/DB?args" as the services do. They split everything before the last '@' at ':' and '/', so
// a password with one of these breaks the DSN, while one with '@' does not.
func ParseDSN(dsn string) (*mysql.Config, error) {
	rest, found := strings.CutPrefix(dsn, "mysql+pymysql://")
	if !found {
		return nil, fmt.Errorf("sql_connection does not start with mysql+pymysql://")
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return nil, fmt.Errorf("sql_connection names no user")
	}
	account := strings.FieldsFunc(rest[:at], func(r rune) bool { return r == ':' || r == '/' })
	if len(account) != 2 {
		return nil, fmt.Errorf("sql_connection cannot be split: a password must hold neither ':' nor '/'")
	}
	address, tail, found := strings.Cut(rest[at+1:], "/")
	if !found {
		return nil, fmt.Errorf("sql_connection names no database")
	}
	name, arguments, _ := strings.Cut(tail, "?")
	if name == "" {
		return nil, fmt.Errorf("sql_connection names no database")
	}
	if _, err := url.ParseQuery(arguments); err != nil {
		return nil, fmt.Errorf("reading arguments of sql_connection: %w", err)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "3306")
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = account[0], account[1], "tcp", address, name
	c.ParseTime, c.InterpolateParams, c.Timeout = true, true, 5*time.Second
	if err := c.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, fmt.Errorf("reading sql_connection: %w", err)
	}
	return c, nil
}

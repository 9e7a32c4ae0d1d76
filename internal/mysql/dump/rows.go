// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	endian "encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/internal/lists"
)

const (
	// statementSize is the approximate length of an INSERT, pieceSize that of the INSERTs of a piece; a single row may be longer.
	statementSize = 512 << 10
	pieceSize     = 4 << 20
)

// database reads one database; emit is nil if only the summary is wanted.
func (s *session) database(ctx context.Context, d schema, emit func(Piece) error) (DatabaseSummary, error) {
	out := DatabaseSummary{Name: d.name, Tables: []TableSummary{}, Others: len(d.sequences) + len(d.others)}
	if emit == nil {
		emit = func(Piece) error { return nil }
	}
	if err := s.exec(ctx, "USE "+quote(d.name)); err != nil {
		return out, s.admin.Fail("choosing the database", err)
	}
	if err := emit(Piece{Database: d.name, Kind: Database, Name: d.name, SQL: []byte(d.create)}); err != nil {
		return out, err
	}
	for _, p := range d.sequences {
		if err := emit(p); err != nil {
			return out, err
		}
	}
	for _, t := range d.tables {
		if err := emit(Piece{Database: d.name, Kind: Table, Name: t.name, SQL: []byte(t.create)}); err != nil {
			return out, err
		}
		sum, err := s.table(ctx, d.name, t, emit)
		if err != nil {
			return out, err
		}
		out.Tables = append(out.Tables, sum)
	}
	for _, p := range d.others {
		if err := emit(p); err != nil {
			return out, err
		}
	}
	return out, nil
}

// table reads the rows of a table. Rolling back to the savepoint releases the metadata lock, so that services can alter the table.
func (s *session) table(ctx context.Context, database string, t table, emit func(Piece) error) (TableSummary, error) {
	fail := func(err error) error {
		if my, ok := errors.AsType[*driver.MySQLError](err); ok && (my.Number == tableChanged || my.Number == noSuchTable || my.Number == noSuchColumn) {
			return fmt.Errorf("reading table %q: %w", t.name, ErrSchemaChanged)
		}
		return s.admin.Fail(fmt.Sprintf("reading table %q", t.name), err)
	}
	if err := s.exec(ctx, "SAVEPOINT ocadm"); err != nil {
		return TableSummary{}, fail(err)
	}
	w := newWriter(t, func(sql []byte) error { return emit(Piece{Database: database, Kind: Rows, Name: t.name, SQL: sql}) })
	var sinking error
	err := s.rows(ctx, selecting(t), nil, func(v []sql.RawBytes) error {
		sinking = w.row(v)
		return sinking
	})
	if sinking == nil && err == nil {
		sinking = w.flush()
	}
	if sinking != nil {
		return TableSummary{}, sinking
	}
	if err == nil {
		err = s.exec(ctx, "ROLLBACK TO SAVEPOINT ocadm")
	}
	if err != nil {
		return TableSummary{}, fail(err)
	}
	return TableSummary{Name: t.name, Rows: w.count, Checksum: w.sum.String(), Loose: t.loose}, nil
}

const (
	tableChanged = 1412
	noSuchTable  = 1146
	noSuchColumn = 1054
)

func selecting(t table) string {
	if len(t.columns) == 0 {
		return "SELECT NULL FROM " + quote(t.name)
	}
	columns := make([]string, len(t.columns))
	for i, c := range t.columns {
		columns[i] = quote(c.name)
		if c.form == float {
			columns[i] += " * 1E0"
		}
	}
	return "SELECT " + strings.Join(columns, ",") + " FROM " + quote(t.name)
}

// writer turns rows into INSERTs.
type writer struct {
	table table
	head  string
	out   func([]byte) error
	buf   bytes.Buffer
	tuple []byte
	// open is the offset of the current statement, or -1 between two.
	open  int
	count int64
	sum   sum
}

func newWriter(t table, out func([]byte) error) *writer {
	names := lists.Map(t.columns, func(c column) string { return quote(c.name) })
	return &writer{table: t, out: out, open: -1, head: "INSERT INTO " + quote(t.name) + " (" + strings.Join(names, ",") + ") VALUES "}
}

func (w *writer) row(values []sql.RawBytes) error {
	w.tuple = append(w.tuple[:0], '(')
	for i, c := range w.table.columns {
		if i > 0 {
			w.tuple = append(w.tuple, ',')
		}
		w.tuple = appendValue(w.tuple, c.form, values[i])
	}
	w.tuple = append(w.tuple, ')')
	w.count++
	w.sum.add(w.tuple)
	if w.open >= 0 && w.buf.Len()-w.open+len(w.tuple) > statementSize {
		w.end()
		if w.buf.Len() >= pieceSize {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	if w.open < 0 {
		w.open = w.buf.Len()
		w.buf.WriteString(w.head)
	} else {
		w.buf.WriteByte(',')
	}
	w.buf.Write(w.tuple)
	return nil
}

func (w *writer) end() {
	if w.open >= 0 {
		w.buf.WriteString(";\n")
		w.open = -1
	}
}

func (w *writer) flush() error {
	w.end()
	if w.buf.Len() == 0 {
		return nil
	}
	err := w.out(w.buf.Bytes())
	w.buf.Reset()
	return err
}

// appendValue writes a value as a literal without a line break, for a session without NO_BACKSLASH_ESCAPES in its sql_mode.
func appendValue(to []byte, f form, v sql.RawBytes) []byte {
	switch {
	case v == nil:
		return append(to, "NULL"...)
	case f == number || f == float:
		return append(to, v...)
	case f == binary && len(v) > 0:
		to = append(to, "_binary "...)
	}
	to = append(to, '\'')
	for _, b := range v {
		switch b {
		case 0:
			to = append(to, `\0`...)
		case '\n':
			to = append(to, `\n`...)
		case '\r':
			to = append(to, `\r`...)
		case 0x1a:
			to = append(to, `\Z`...)
		case '\\':
			to = append(to, `\\`...)
		case '\'':
			to = append(to, `\'`...)
		default:
			to = append(to, b)
		}
	}
	return append(to, '\'')
}

// sum adds up the hashes of rows, so that their order does not matter.
type sum [4]uint64

func (s *sum) add(row []byte) {
	h := sha256.Sum256(row)
	var carry uint64
	for i := range s {
		s[i], carry = bits.Add64(s[i], endian.LittleEndian.Uint64(h[8*i:]), carry)
	}
}

func (s *sum) String() string {
	var out [32]byte
	for i, w := range s {
		endian.LittleEndian.PutUint64(out[8*i:], w)
	}
	return hex.EncodeToString(out[:])
}

// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"context"
	"database/sql"
	"strconv"

	"yunion.io/x/ocadm/internal/mysql"
)

// Progress is the progress of reading databases.
type Progress struct {
	// Done and Total are bytes of tables as the server estimates them. They are equal at the end.
	Done, Total int64
	// Database is the one being read, number Nth of Of. Tables is its number of tables.
	Database        string
	Nth, Of, Tables int
}

// Meter follows the pieces of a dump. It counts each table with the size that the server estimates, so the total is known from the start.
type Meter struct {
	sizes  map[[2]string]int64
	tables map[string]int
	report func(Progress)

	now Progress
	// before is the total size of the tables before the current one, of the size of the current one, and read the number of bytes read of it.
	before, of, read int64
}

// leastSize is the smallest size that a table counts with, as reading an empty table also takes a moment.
const leastSize = 16 << 10

// NewMeter queries the server for the sizes of the tables of databases.
func NewMeter(ctx context.Context, a *mysql.Admin, databases []string, report func(Progress)) (*Meter, error) {
	m := &Meter{sizes: map[[2]string]int64{}, tables: map[string]int{}, report: report, now: Progress{Of: len(databases)}}
	s, err := newSession(ctx, a)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for _, d := range databases {
		err := s.rows(ctx, "SELECT TABLE_NAME, DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_TYPE = 'BASE TABLE'", []any{d},
			func(v []sql.RawBytes) error {
				size, _ := strconv.ParseInt(string(v[1]), 10, 64) // NULL for a damaged table
				size = max(size, leastSize)
				m.sizes[[2]string{d, string(v[0])}] = size
				m.tables[d]++
				m.now.Total += size
				return nil
			})
		if err != nil {
			return nil, a.Fail("reading the sizes of the tables", err)
		}
	}
	return m, nil
}

// Piece counts the next piece of the dump. It never fails, and can be used as emit.
func (m *Meter) Piece(p Piece) error {
	switch p.Kind {
	case Database:
		m.next(0)
		m.now.Database, m.now.Tables = p.Name, m.tables[p.Name]
		m.now.Nth++
	case Table:
		m.next(m.sizes[[2]string{p.Database, p.Name}])
	case Rows:
		m.read = min(m.read+int64(len(p.SQL)), m.of)
	default:
		return nil
	}
	m.now.Done = m.before + m.read
	m.report(m.now)
	return nil
}

func (m *Meter) next(size int64) { m.before, m.of, m.read = m.before+m.of, size, 0 }

// End reports that everything was read.
func (m *Meter) End() {
	m.now.Done = m.now.Total
	m.report(m.now)
}

// Over returns an emit function that counts each piece before passing it on.
func (m *Meter) Over(emit func(Piece) error) func(Piece) error {
	return func(p Piece) error {
		if err := m.Piece(p); err != nil {
			return err
		}
		return emit(p)
	}
}

// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"context"
	"database/sql"
	"strconv"

	"yunion.io/x/ocadm/internal/mysql"
)

// Progress is how much of some databases has been read.
type Progress struct {
	// Done and Total are bytes of tables as the server estimates them. At the end they are equal.
	Done, Total int64
	// Database is the one that is being read: number Nth of Of. Tables is how many tables it has.
	Database        string
	Nth, Of, Tables int
}

// Meter follows the pieces of a dump. A table counts with the size that the server estimates, so that the end is known from the beginning.
type Meter struct {
	sizes  map[[2]string]int64
	tables map[string]int
	report func(Progress)

	now Progress
	// before is what the tables before the present one count, of the present one, read what came of it.
	before, of, read int64
}

// leastSize is what a table counts of which the server knows no size: reading it takes a moment, too.
const leastSize = 16 << 10

// NewMeter asks the server how large the tables of databases are.
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
				size, _ := strconv.ParseInt(string(v[1]), 10, 64) // NULL of a damaged table
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

// Piece takes the next piece of the dump. It never fails, and can stand for emit.
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

// next ends the present table.
func (m *Meter) next(size int64) { m.before, m.of, m.read = m.before+m.of, size, 0 }

// End says that everything was read.
func (m *Meter) End() {
	m.now.Done = m.now.Total
	m.report(m.now)
}

// Over is emit with the meter before it.
func (m *Meter) Over(emit func(Piece) error) func(Piece) error {
	return func(p Piece) error {
		if err := m.Piece(p); err != nil {
			return err
		}
		return emit(p)
	}
}

// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// ErrDiffers is the error of a service that may not change its tables and finds others.
var ErrDiffers = errors.New("tables differ from their definition")

// errKilled is the error of a migration that fails halfway.
var errKilled = errors.New("killed in the middle of the migration")

// Migrate migrates the database of a service to a version. If halfway is set, it stops in the middle, like a service that dies there, unless there is nothing to change.
func Migrate(ctx context.Context, db *sql.DB, service, version string, halfway bool) error {
	want := Tables(service, version)
	have, err := read(ctx, db, want)
	if err != nil {
		return err
	}
	plan := Plan(have, want)
	for i, statement := range append(plan, moves(service, version)...) {
		if halfway && i == len(plan)/2 && len(plan) > 0 {
			return fmt.Errorf("%w: %d of %d statements are done", errKilled, i, len(plan))
		}
		for _, one := range strings.Split(statement, apart) {
			if _, err := db.ExecContext(ctx, one); err != nil {
				return fmt.Errorf("syncing schema: %s: %w", one, err)
			}
		}
	}
	return nil
}

// Check returns ErrDiffers if a database does not have the wanted tables.
func Check(ctx context.Context, db *sql.DB, want []Table) error {
	have, err := read(ctx, db, want)
	if err != nil {
		return err
	}
	if plan := Plan(have, want); len(plan) > 0 {
		return fmt.Errorf("%w: %s", ErrDiffers, plan[0])
	}
	return nil
}

// width matches an integer's display width, which MariaDB prints and MySQL does not.
var width = regexp.MustCompile(`^(tinyint|int|bigint)\(\d+\)`)

// read returns the current definitions of those wanted tables that exist.
func read(ctx context.Context, db *sql.DB, want []Table) ([]Table, error) {
	names := lists.Map(want, func(t Table) any { return t.Name })
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
	rows, err := db.QueryContext(ctx, "SELECT c.table_name, c.column_name, c.column_type, c.is_nullable = 'YES', COALESCE(TRIM(BOTH '''' FROM c.column_default), ''), "+
		"c.column_key <> '' AND c.column_key <> 'PRI' FROM information_schema.columns c "+
		"WHERE c.table_schema = DATABASE() AND c.table_name IN ("+marks+") ORDER BY c.table_name, c.ordinal_position", names...)
	if err != nil {
		return nil, fmt.Errorf("reading schema: %w", err)
	}
	defer rows.Close()
	var have []Table
	for rows.Next() {
		var table string
		var c Column
		var indexed bool
		if err := rows.Scan(&table, &c.Name, &c.Type, &c.Null, &c.Default, &indexed); err != nil {
			return nil, fmt.Errorf("reading schema: %w", err)
		}
		c.Type = width.ReplaceAllString(c.Type, "$1")
		if c.Null {
			c.Default = "" // NULL is the default of a nullable column
		}
		i := slices.IndexFunc(have, func(t Table) bool { return t.Name == table })
		if i < 0 {
			have, i = append(have, Table{Name: table}), len(have)
		}
		have[i].Columns = append(have[i].Columns, c)
		if indexed {
			have[i].Indexes = append(have[i].Indexes, c.Name)
		}
	}
	return have, rows.Err()
}

// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// Plan returns the ordered statements that change the existing tables to those of a release, or nothing. A statement that creates a table is followed
// by apart and the statement that fills it.
func Plan(have, want []Table) []string {
	var out []string
	for _, t := range want {
		i := slices.IndexFunc(have, func(h Table) bool { return h.Name == t.Name })
		if i < 0 {
			out = append(out, create(t)...)
			continue
		}
		out = append(out, alter(have[i], t)...)
	}
	return out
}

func create(t Table) []string {
	parts := append(lists.Map(t.Columns, Column.String), "PRIMARY KEY (`"+t.Columns[0].Name+"`)")
	parts = append(parts, lists.Map(t.Indexes, func(name string) string { return "KEY `" + name + "` (`" + name + "`)" })...)
	out := []string{"CREATE TABLE IF NOT EXISTS `" + t.Name + "` (" + strings.Join(parts, ", ") + ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"}
	if len(t.Rows) == 0 {
		return out
	}
	names := lists.Map(t.Columns[:len(t.Rows[0])], func(c Column) string { return "`" + c.Name + "`" })
	// Missing values become empty, even if the release has no default for them.
	fill := ""
	for _, c := range t.Columns[len(names):] {
		if !c.Null && c.Default == "" {
			names, fill = append(names, "`"+c.Name+"`"), fill+", ''"
		}
	}
	rows := lists.Map(t.Rows, func(row []string) string { return "('" + strings.Join(row, "', '") + "'" + fill + ")" })
	return []string{out[0] + apart + "INSERT IGNORE INTO `" + t.Name + "` (" + strings.Join(names, ", ") + ") VALUES " + strings.Join(rows, ", ")}
}

// apart separates two statements that an interrupted migration does not split.
const apart = ";\n"

func alter(have, want Table) []string {
	var out []string
	change := func(format string, args ...any) {
		out = append(out, "ALTER TABLE `"+want.Name+"` "+fmt.Sprintf(format, args...))
	}
	for _, c := range want.Columns {
		old, there := have.column(c.Name)
		if was, carries := have.column(c.Was); !there && carries {
			change("CHANGE COLUMN `%s` %s", was.Name, c)
			// The column with the old name is gone; a new column may use the name.
			have.Columns = slices.DeleteFunc(slices.Clone(have.Columns), func(h Column) bool { return h.Name == was.Name })
			have.Columns = append(have.Columns, c)
			continue
		}
		switch {
		case !there:
			change("ADD COLUMN %s", c)
		case old.String() != c.String():
			change("MODIFY COLUMN %s", c)
		}
	}
	for _, c := range have.Columns {
		if _, known := want.column(c.Name); !known && !c.Null && c.Default == "" {
			c.Null = true
			change("MODIFY COLUMN %s", c)
		}
	}
	for _, name := range have.Indexes {
		if !slices.Contains(want.Indexes, name) {
			change("DROP INDEX `%s`", name)
		}
	}
	for _, name := range want.Indexes {
		if !slices.Contains(have.Indexes, name) {
			change("ADD INDEX `%s` (`%s`)", name, name)
		}
	}
	return out
}

// String returns the definition of a column.
func (c Column) String() string {
	s := "`" + c.Name + "` " + c.Type
	switch {
	case c.Null:
		return s + " NULL"
	case c.Default != "":
		return s + " NOT NULL DEFAULT '" + c.Default + "'"
	}
	return s + " NOT NULL"
}

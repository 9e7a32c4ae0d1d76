// SPDX-License-Identifier: Apache-2.0

// Package schema defines the tables of the stand-ins for each release of a service, and migrates a database at the start as the real services do. A
// migration adds tables, columns and indexes, modifies columns that differ (even to a narrower type), renames a column that has an older name, drops
// unknown indexes, and makes an unknown column nullable if inserts would otherwise have to set it. It never drops a column or a table. Statements are
// not transactional: after a failure, those before it stay.
package schema

import (
	"slices"
	"strings"

	"yunion.io/x/ocadm/operatorctl/component"
)

// Column is a column as a release defines it.
type Column struct {
	// Was is the name in older releases.
	Name, Was string
	// Type is the type as the server prints it, without the width of an integer: "varchar(36)", "int".
	Type string
	// Null allows NULL. Default is the default of a column that does not allow it, "" for none.
	Null    bool
	Default string
}

// Table is a table as a release defines it. Its first column is the key.
type Table struct {
	Name    string
	Columns []Column
	// Indexes lists the columns that have their own index.
	Indexes []string
	// Rows are the initial rows, with one value for each of the first columns.
	Rows [][]string
}

// since reports whether a version belongs to the release first or a later one. A version that names no release counts as the newest.
func since(version, first string) bool { return !component.Before(version, first) }

// pick returns new from the release first on, and old before it.
func pick[T any](version, first string, old, new T) T {
	if since(version, first) {
		return new
	}
	return old
}

// region shares its database with services that expect its tables.
const region = "region"

// Tables returns the tables that a version of a service defines in its database. It returns none for a service that only expects another's.
func Tables(service, version string) []Table {
	tables := []Table{resources(service, version)}
	if service == region {
		tables = append(tables, devices(version))
		if since(version, "v4.0.4") {
			tables = append(tables, Table{Name: joint, Columns: []Column{id, {Name: "guest_id", Type: "varchar(36)"}}})
		}
	}
	return tables
}

// Expected returns the tables that a version of a service requires at its start, although another service creates them.
func Expected(version string) []Table { return Tables(region, version) }

var id = Column{Name: "id", Type: "varchar(36)"}

// Resources returns the name of the table that every service with a database has, prefixed by the service's name because databases may be shared.
func Resources(service string) string {
	return strings.ReplaceAll(service, "-", "_") + "_resources_tbl"
}

// resources returns a table with a column for each kind of change in the releases.
func resources(service, version string) Table {
	columns := []Column{
		id,
		{Name: "name", Type: "varchar(128)"},
		// 3.10: description is a text.
		{Name: "description", Type: pick(version, "v3.10", "varchar(256)", "text"), Null: true},
		// 4.0: ids of other clouds may be longer.
		{Name: "external_id", Type: pick(version, "v4.0", "varchar(256)", "varchar(512)"), Null: true},
		// 4.0: networks may have only IPv6.
		{Name: "ip_addr", Type: pick(version, "v4.0", "varchar(16)", "varchar(64)"), Null: since(version, "v4.0")},
		// 4.0.3: the traffic of guests has another name.
		pick(version, "v4.0.3", Column{Name: "rx_traffic_used", Type: "bigint", Null: true},
			Column{Name: "rx_bytes", Was: "rx_traffic_used", Type: "bigint", Null: true}),
		// 4.0: a name became a type, and the old name was reused.
		pick(version, "v4.0", Column{Name: "obj_name", Type: "varchar(128)", Null: true},
			Column{Name: "obj_type", Was: "obj_name", Type: "varchar(128)", Null: true}),
	}
	if since(version, "v4.0") {
		columns = append(columns, Column{Name: "obj_name", Type: "varchar(256)", Null: true})
	}
	// 3.11: the index of a NIC is an int.
	columns = append(columns, Column{Name: "index_no", Type: pick(version, "v3.11", "tinyint", "int"), Default: "0"})
	for _, added := range []struct {
		first  string
		column Column
	}{
		{"v3.10", Column{Name: "progress", Type: "int", Default: "0"}},
		{"v4.0", Column{Name: "project_src", Type: "varchar(10)"}}, // NOT NULL without default, like 34 columns of 4.0
		{"v4.0.4", Column{Name: "is_draining", Type: "tinyint", Default: "0"}},
		{"v4.0.4", Column{Name: "drained_at", Type: "datetime", Null: true}},
	} {
		if since(version, added.first) {
			columns = append(columns, added.column)
		}
	}
	return Table{
		Name: Resources(service), Columns: columns, Indexes: pick(version, "v4.0.3", []string{"name"}, []string{"name", "external_id"}),
		Rows: [][]string{
			{service + "-1", "first", "made by the first release", "ext-1", "10.0.0.1", "1000", "server"},
			{service + "-2", "second", "made by the first release", "ext-2", "10.0.0.2", "2000", "disk"},
			{service + "-3", "third", "made by the first release", "ext-3", "10.0.0.3", "3000", "snapshot"},
		},
	}
}

// Names in the data migration of 4.0.4.
const (
	joint       = "guest_isolated_devices_tbl"
	deviceTable = "isolated_devices_tbl"
)

// devices returns the table of devices that are passed through to guests.
func devices(version string) Table {
	return Table{
		Name: deviceTable,
		Columns: []Column{
			id, {Name: "guest_id", Type: "varchar(36)", Null: true}, {Name: "dev_type", Type: pick(version, "v4.0", "varchar(16)", "varchar(128)")},
		},
		Rows: [][]string{{"device-1", "region-1", "GPU-HPC"}, {"device-2", "region-2", "USB"}},
	}
}

// moves returns the statements of a version's data migrations, which run after the schema changes. They are idempotent.
func moves(service, version string) []string {
	if service != region || !since(version, "v4.0.4") {
		return nil
	}
	return []string{
		"INSERT INTO `" + joint + "` (id, guest_id) SELECT d.id, d.guest_id FROM `" + deviceTable + "` d " +
			"LEFT JOIN `" + joint + "` j ON j.id = d.id WHERE d.guest_id IS NOT NULL AND j.id IS NULL",
		"UPDATE `" + deviceTable + "` SET guest_id = NULL WHERE guest_id IS NOT NULL",
	}
}

func (t Table) column(name string) (Column, bool) {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return Column{}, false
	}
	return t.Columns[i], true
}

// SPDX-License-Identifier: Apache-2.0

// Package servicespec describes each program that the stand-in can play. The catalogue describes ordinary services; a table describes the others, and
// what a service rejects.
package servicespec

import (
	"cmp"
	"slices"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/options"
)

// Role is the kind of program that a service is.
type Role string

const (
	// Identity is keystone itself.
	Identity Role = "identity"
	// API is a service with an HTTP port that authenticates at keystone.
	API Role = "api"
	// Agent reads its configuration and stays up; it serves nothing.
	Agent Role = "agent"
	// Raw reads a file without interpreting it and stays up.
	Raw Role = "raw"
	// CLI is climc.
	CLI Role = "cli"
	// Foreign is a program that is not the cloud's own. It accepts any arguments, stays up and answers /health on its ports.
	Foreign Role = "foreign"
	// Once ends immediately and successfully.
	Once Role = "once"
)

// Database is the way in which a program uses MariaDB.
type Database string

const (
	NoDatabase  Database = ""
	OwnDatabase Database = "own"
	// RegionDatabase is region's database, shared.
	RegionDatabase Database = "region"
)

// Spec describes one program.
type Spec struct {
	Name string
	Role Role
	// Type is the type of its service in the catalogue, which also stores its configuration.
	Type string
	// Component is part of the names that the certificate must contain: <cluster>-<Component>. It is empty for host-network agents.
	Component string
	Database  Database
	// PortKey is the option for the port, which the operator always sets; Port is its default.
	PortKey string
	Port    int
	// SecondPortKey and SecondPort, if set, define a second listener (keystone's admin port, apigateway's web sockets).
	SecondPortKey string
	SecondPort    int
	// StoredIn is the type of the service under which keystone stores its options: "" means Type, "-" means none.
	StoredIn string
	// Table is the component whose options it accepts (templates/services/options), Name if empty. A program without a table accepts the groups.
	Table string
	// Options are additional accepted keys.
	Options string
	// Tables are additional tables that sync creates.
	Tables []string
	// IgnoresInit reports whether --exit-after-db-init is accepted and ignored.
	IgnoresInit bool
	// NeverSyncs reports whether it requires tables that another program creates.
	NeverSyncs bool
	// NeedsService is a service type that must be registered before it starts.
	NeedsService string
	// NeedsEndpoint lists service types of which one must have an endpoint.
	NeedsEndpoint []string
	// OpenDefaults reports whether /ping answers any user agent.
	OpenDefaults bool
	// PlainHTTP reports whether enable_ssl is ignored.
	PlainHTTP bool
	// CertKey and KeyKey override ssl_certfile and ssl_keyfile.
	CertKey, KeyKey string
	// NodeFile is a configuration file of the machine. It may be missing on a lab machine.
	NodeFile string
	// PortFile is a properties file whose server.port is its port.
	PortFile string
}

// Lookup returns the row of a program, or derives one from the catalogue.
func Lookup(name string) Spec {
	rows := table()
	i := slices.IndexFunc(rows, func(p Spec) bool { return p.Name == name })
	if i < 0 {
		return complete(ordinary(name))
	}
	return complete(rows[i])
}

// Names returns all programs that have a row.
func Names() []string {
	return lists.Map(table(), func(row Spec) string { return row.Name })
}

func complete(p Spec) Spec {
	p.Role = cmp.Or(p.Role, API)
	if p.Role == API {
		p.Type = cmp.Or(p.Type, p.Name)
	}
	p.Table, p.StoredIn, p.PortKey = cmp.Or(p.Table, p.Name), cmp.Or(p.StoredIn, p.Type), cmp.Or(p.PortKey, "port")
	if p.Port == 0 && p.Role != Foreign {
		p.Port = 8889
	}
	if p.CertKey == "" {
		p.CertKey, p.KeyKey = "ssl_certfile", "ssl_keyfile"
	}
	return p
}

// Schema returns all keys that the program accepts.
func (p Spec) Schema() Schema {
	if table, known := options.Of(p.Table); known {
		schema := NewSchema(p.Options)
		for name, o := range table {
			schema[name] = o.Type
		}
		return schema
	}
	groups := []string{tlsKeys, baseKeys, sharedKeys, p.Options}
	if p.Role != Identity {
		groups = append(groups, accountKeys)
	}
	if p.Database != NoDatabase {
		groups = append(groups, databaseKeys)
	}
	return NewSchema(groups...)
}

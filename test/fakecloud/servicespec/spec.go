// SPDX-License-Identifier: Apache-2.0

// Package servicespec says what each program does that the stand-in can play. An ordinary service follows from the catalogue; the table has
// the others, and what a service refuses.
package servicespec

import (
	"cmp"
	"slices"

	"yunion.io/x/ocadm/internal/options"
)

// Role says what kind of program a service is.
type Role string

const (
	// Identity is keystone itself.
	Identity Role = "identity"
	// API is a service with an HTTP port that authenticates at keystone.
	API Role = "api"
	// Agent reads its configuration and stays up; it serves nothing.
	Agent Role = "agent"
	// Raw reads a file that is not ours to understand and stays up.
	Raw Role = "raw"
	// CLI is climc.
	CLI Role = "cli"
	// Foreign is a program that is not the cloud's own: it takes any arguments, stays up and answers /health on its ports.
	Foreign Role = "foreign"
	// Once ends well at once.
	Once Role = "once"
)

// Database says how a program uses MariaDB.
type Database string

const (
	NoDatabase  Database = ""
	OwnDatabase Database = "own"
	// RegionDatabase is region's, shared.
	RegionDatabase Database = "region"
)

// Spec is one program.
type Spec struct {
	Name string
	Role Role
	// Type is the type of its service in the catalogue; its stored configuration lies there.
	Type string
	// Component completes the names the certificate must carry: <cluster>-<Component>. Empty for host-network agents.
	Component string
	Database  Database
	// PortKey and Port are the option that names the port, and its default; the operator always sets it.
	PortKey string
	Port    int
	// SecondPortKey and SecondPort, when set, are a second listener (keystone's admin port, apigateway's web sockets).
	SecondPortKey string
	SecondPort    int
	// StoredIn is the type of the service under which keystone keeps its options: "" is Type, "-" none.
	StoredIn string
	// Table is the component whose options it knows (templates/services/options), "" = Name; a program without a table knows the groups.
	Table string
	// Options are the keys accepted beyond the table or the groups.
	Options string
	// Tables are created on sync, besides the program's own.
	Tables []string
	// IgnoresInit: --exit-after-db-init is accepted and ignored.
	IgnoresInit bool
	// NeverSyncs: it expects tables that another program created.
	NeverSyncs bool
	// NeedsService is a catalogue type that must be registered before it starts.
	NeedsService string
	// NeedsEndpoint is a list of types of which one must have an endpoint.
	NeedsEndpoint []string
	// OpenDefaults: /ping answers any user agent.
	OpenDefaults bool
	// PlainHTTP: enable_ssl is ignored.
	PlainHTTP bool
	// Quiet: no log line when it listens.
	Quiet bool
	// CertKey and KeyKey override ssl_certfile and ssl_keyfile.
	CertKey, KeyKey string
	// NodeFile is a configuration file of the machine; a lab machine need not have it.
	NodeFile string
	// PortFile is a file of properties in which server.port is its port.
	PortFile string
}

// Lookup finds the row of a program, or makes one from the catalogue.
func Lookup(name string) Spec {
	rows := table()
	i := slices.IndexFunc(rows, func(p Spec) bool { return p.Name == name })
	if i < 0 {
		return complete(ordinary(name))
	}
	return complete(rows[i])
}

// Names lists every program with a row.
func Names() []string {
	var names []string
	for _, row := range table() {
		names = append(names, row.Name)
	}
	return names
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

// Schema is every key the program accepts.
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

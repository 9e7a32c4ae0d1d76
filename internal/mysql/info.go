// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"fmt"
	"strconv"
	"strings"
)

// Flavour is the product that a server runs.
type Flavour string

const (
	MySQL   Flavour = "MySQL"
	MariaDB Flavour = "MariaDB"
)

// The oldest servers that support the statements used here (ALTER USER, CREATE USER IF NOT EXISTS, utf8mb4 by name).
const (
	minMySQL   = "8.0"
	minMariaDB = "10.3"
)

// ServerInfo is what a server reports about itself.
type ServerInfo struct {
	Flavour Flavour
	// Version is the whole version string, Major and Minor its first two numbers.
	Version      string
	Major, Minor int
	// Account is CURRENT_USER(): the account as the server matched it, quoted.
	Account                 string
	MaxAllowedPacket        int64
	LowerCaseTableNames     int
	ReadOnly, SuperReadOnly bool
	// PartialRevokes (MySQL 8) makes _ and % in a GRANT's database name literal.
	PartialRevokes bool
}

var infoVariables = []string{"max_allowed_packet", "lower_case_table_names", "read_only", "super_read_only", "partial_revokes"}

// newServerInfo is a pure function of the version string, CURRENT_USER() and the variables.
func newServerInfo(version, account string, vars map[string]string) ServerInfo {
	on := func(name string) bool { v := strings.ToUpper(vars[name]); return v == "ON" || v == "1" }
	num := func(name string) int64 { n, _ := strconv.ParseInt(vars[name], 10, 64); return n }
	i := ServerInfo{
		Flavour: MySQL, Version: version, Account: quoteAccount(account),
		MaxAllowedPacket: num("max_allowed_packet"), LowerCaseTableNames: int(num("lower_case_table_names")),
		ReadOnly: on("read_only"), SuperReadOnly: on("super_read_only"), PartialRevokes: on("partial_revokes"),
	}
	number := version
	if strings.Contains(strings.ToLower(version), "mariadb") {
		i.Flavour = MariaDB
		number = strings.TrimPrefix(version, "5.5.5-")
	}
	i.Major, i.Minor = parseVersion(number)
	return i
}

func parseVersion(s string) (major, minor int) {
	_, _ = fmt.Sscanf(s, "%d.%d", &major, &minor) // anything that is not a number stays 0
	return major, minor
}

// TooOld reports whether the server is older than ocadm supports.
func (i ServerInfo) TooOld() bool {
	least := minMySQL
	if i.Flavour == MariaDB {
		least = minMariaDB
	}
	major, minor := parseVersion(least)
	return i.Major < major || i.Major == major && i.Minor < minor
}

func (i ServerInfo) String() string { return fmt.Sprintf("%s %s", i.Flavour, i.Version) }

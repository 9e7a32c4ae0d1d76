// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ClickHouse/ch-go/proto"

	"yunion.io/x/ocadm/internal/lists"
)

func exception(code int, format string, args ...any) *proto.Exception {
	return &proto.Exception{Code: proto.Error(code), Name: "DB::Exception", Message: "DB::Exception: " + fmt.Sprintf(format, args...)}
}

// The parts of known statements. Names are in backticks and strings in single quotes, both with backslash escapes.
const (
	ident   = "`((?:[^`\\\\]|\\\\.)+)`"
	literal = `'([0-9a-f]{64})'`
)

// form is a known statement.
type form struct {
	match *regexp.Regexp
	// right is the privilege that an account needs; the administrator has all.
	do func(s *Server, names []string) ([][]string, *proto.Exception)
}

func forms() []form {
	compile := func(s string, do func(*Server, []string) ([][]string, *proto.Exception)) form {
		return form{regexp.MustCompile("^" + s + "$"), do}
	}
	return []form{
		compile(`CREATE DATABASE IF NOT EXISTS `+ident, func(s *Server, n []string) ([][]string, *proto.Exception) {
			s.databases[n[0]] = true
			return nil, nil
		}),
		compile(`DROP DATABASE IF EXISTS `+ident, func(s *Server, n []string) ([][]string, *proto.Exception) {
			delete(s.databases, n[0])
			return nil, nil
		}),
		compile(`CREATE USER `+ident+` IDENTIFIED WITH sha256_hash BY `+literal, (*Server).createUser),
		compile(`ALTER USER `+ident+` IDENTIFIED WITH sha256_hash BY `+literal, (*Server).alterUser),
		compile(`DROP USER IF EXISTS `+ident, (*Server).dropUser),
		compile(`GRANT ([A-Za-z, ]+) ON `+ident+`\.\*, MYSQL ON \*\.\* TO `+ident, (*Server).grant),
		compile(`REVOKE ([A-Za-z, ]+) ON `+ident+`\.\* FROM `+ident, (*Server).revoke),
		compile(`SELECT name FROM system\.databases`, func(s *Server, _ []string) ([][]string, *proto.Exception) {
			return column("name", slices.Sorted(maps.Keys(s.databases))), nil
		}),
		compile(`SELECT name FROM system\.users`, func(s *Server, _ []string) ([][]string, *proto.Exception) {
			return column("name", slices.Sorted(maps.Keys(s.accounts))), nil
		}),
		compile(`SELECT (.*) FROM system\.grants WHERE user_name IS NOT NULL AND .table. IS NULL`, (*Server).listGrants),
	}
}

func column(name string, values []string) [][]string {
	return append([][]string{{name}}, lists.Map(values, func(v string) []string { return []string{v} })...)
}

// Run executes a statement as an account and returns the column names and rows. Tests also use it to change the stored data.
func (s *Server) Run(user, statement string) ([][]string, *proto.Exception) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statements = append(s.statements, statement)
	if user != AdminUser {
		return nil, exception(497, "%s: Not enough privileges.", user)
	}
	for _, f := range forms() {
		m := f.match.FindStringSubmatch(statement)
		if m == nil {
			continue
		}
		for i := range m {
			m[i] = unescape.ReplaceAllString(m[i], "$1")
		}
		return f.do(s, m[1:])
	}
	return nil, exception(62, "Syntax error: failed at position 1: %s", statement)
}

var unescape = regexp.MustCompile(`\\(.)`)

func (s *Server) createUser(n []string) ([][]string, *proto.Exception) {
	if s.accounts[n[0]] != nil {
		return nil, exception(493, "user `%s`: cannot insert because user `%s` already exists in local_directory", n[0], n[0])
	}
	s.accounts[n[0]] = &account{hash: n[1], grants: map[string]map[string]bool{}}
	return nil, nil
}

func (s *Server) alterUser(n []string) ([][]string, *proto.Exception) {
	a := s.accounts[n[0]]
	switch {
	case a == nil:
		return nil, exception(192, "There is no user `%s` in user directories", n[0])
	case a.file:
		return nil, exception(495, "Cannot update user `%s` in users_xml because this storage is readonly", n[0])
	}
	a.hash = n[1]
	return nil, nil
}

func (s *Server) dropUser(n []string) ([][]string, *proto.Exception) {
	delete(s.accounts, n[0])
	return nil, nil
}

func (s *Server) grant(n []string) ([][]string, *proto.Exception) {
	a := s.accounts[n[2]]
	if a == nil {
		return nil, exception(511, "There is no role `%s` in user directories", n[2])
	}
	for _, database := range []string{n[1], ""} {
		if a.grants[database] == nil {
			a.grants[database] = map[string]bool{}
		}
	}
	for _, p := range strings.Split(n[0], ", ") {
		a.grants[n[1]][p] = true
	}
	a.grants[""]["READ"], a.grants[""]["WRITE"] = true, true // the real server shows MYSQL like this
	return nil, nil
}

func (s *Server) revoke(n []string) ([][]string, *proto.Exception) {
	if a := s.accounts[n[2]]; a != nil {
		for _, p := range strings.Split(n[0], ", ") {
			delete(a.grants[n[1]], p)
		}
	}
	return nil, nil
}

func (s *Server) listGrants([]string) ([][]string, *proto.Exception) {
	out := [][]string{{"account", "privilege", "target", "revoked"}}
	for _, user := range slices.Sorted(maps.Keys(s.accounts)) {
		a := s.accounts[user]
		for _, database := range slices.Sorted(maps.Keys(a.grants)) {
			for _, p := range slices.Sorted(maps.Keys(a.grants[database])) {
				out = append(out, []string{user, p, database, "0"})
			}
		}
	}
	return out, nil
}

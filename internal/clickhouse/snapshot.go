// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"context"
	"sync"
	"time"
)

// Snapshot holds the databases, accounts and grants of a server at one moment, plus what was created with the snapshot since. It only saves
// statements: a database that others created meanwhile is left alone, and an account is looked at again.
type Snapshot struct {
	taken time.Time

	mu        sync.Mutex
	databases map[string]bool
	accounts  map[string]bool
	grants    map[grant]bool
	// limited has the accounts with a partial revoke, whose grants do not show what they may do.
	limited map[string]bool
}

// grant is a privilege of an account on a database; database "" means all.
type grant struct{ account, privilege, database string }

// Snapshot lists the existing databases, accounts and grants.
func (a *Admin) Snapshot(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{taken: time.Now(), databases: map[string]bool{}, accounts: map[string]bool{}, grants: map[grant]bool{}, limited: map[string]bool{}}
	rows, err := a.rows(ctx, "listing databases", "SELECT name FROM system.databases", "name")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		s.databases[r[0]] = true
	}
	if rows, err = a.rows(ctx, "listing accounts", "SELECT name FROM system.users", "name"); err != nil {
		return nil, err
	}
	for _, r := range rows {
		s.accounts[r[0]] = true
	}
	// Only grants on whole databases count.
	rows, err = a.rows(ctx, "listing grants", "SELECT ifNull(user_name, '') AS account, toString(access_type) AS privilege, ifNull(`database`, '') AS target, "+
		"toString(is_partial_revoke) AS revoked FROM system.grants WHERE user_name IS NOT NULL AND `table` IS NULL", "account", "privilege", "target", "revoked")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if r[3] != "0" {
			s.limited[r[0]] = true
			continue
		}
		s.grants[grant{account: r[0], privilege: r[1], database: r[2]}] = true
	}
	return s, nil
}

// Age returns the age of the snapshot.
func (s *Snapshot) Age() time.Duration { return time.Since(s.taken) }

func (s *Snapshot) has(database string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.databases[database]
}

func (s *Snapshot) created(database string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.databases[database] = true
}

func (s *Snapshot) knows(account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accounts[account]
}

func (s *Snapshot) made(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[account] = true
}

// groups maps a privilege to the group that contains it. The server shows the group if an account has all of it.
var groups = map[string]string{
	"CREATE DATABASE": "CREATE", "CREATE TABLE": "CREATE", "CREATE VIEW": "CREATE", "CREATE DICTIONARY": "CREATE",
	"DROP TABLE": "DROP", "DROP VIEW": "DROP", "DROP DICTIONARY": "DROP", fromMySQL: "SOURCES",
}

func (s *Snapshot) may(account, privilege, database string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limited[account] {
		return false
	}
	for _, d := range []string{database, ""} {
		for _, p := range []string{privilege, groups[privilege], "ALL"} {
			if p != "" && s.grants[grant{account, p, d}] {
				return true
			}
		}
	}
	// Newer servers split the privilege in two.
	return privilege == fromMySQL && s.grants[grant{account, "READ", ""}] && s.grants[grant{account, "WRITE", ""}]
}

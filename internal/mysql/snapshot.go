// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Snapshot holds the databases and accounts of a server at one moment, plus what was created with the snapshot since. It only saves statements: a
// database that others created meanwhile is left alone, and such an account makes us look again.
type Snapshot struct {
	taken time.Time
	// lower is true if the server keeps the names of databases in lower case.
	lower bool
	// marking is true if the table of the markers exists.
	marking atomic.Bool

	mu        sync.Mutex
	databases map[string]bool
	accounts  map[string]map[string]credential
	// passwords holds those that accounts were given, or proved to have, since the snapshot was taken.
	passwords map[string]string
	// owners holds the markers; blocked holds what a Claim could not get.
	owners  map[thing]Owner
	blocked map[thing]obstacle
	// grants holds the databases on which an account has all privileges, as mysql.db names them; nil until needed.
	grants map[UserHost]map[string]bool
}

func (a *Admin) Snapshot(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{
		taken: time.Now(), lower: a.info.LowerCaseTableNames != 0,
		databases: map[string]bool{}, accounts: map[string]map[string]credential{}, passwords: map[string]string{},
		blocked: map[thing]obstacle{},
	}
	names, err := strings1(ctx, a.cfg, a.runs(), "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
	if err != nil {
		return nil, a.fail("listing databases", err, NoCreate)
	}
	for _, n := range names {
		s.databases[s.key(n)] = true
	}
	err = query(ctx, a.cfg, a.runs(), "SELECT User, Host, plugin, COALESCE(authentication_string, '') FROM mysql.user", nil, func(r *sql.Rows) error {
		var u UserHost
		var c credential
		err := r.Scan(&u.User, &u.Host, &c.plugin, &c.hash)
		if s.accounts[u.User] == nil {
			s.accounts[u.User] = map[string]credential{}
		}
		s.accounts[u.User][u.Host] = c
		return err
	})
	if err != nil {
		return nil, a.fail("listing accounts", err, NoCreateUser)
	}
	owners, marking, err := a.owners(ctx)
	if err != nil {
		return nil, err
	}
	s.owners = owners
	s.marking.Store(marking)
	return s, nil
}

// normal returns the thing with its name as the server keeps it.
func (s *Snapshot) normal(t thing) thing {
	if t.kind == kindDatabase {
		t.name = s.key(t.name)
	}
	return t
}

func (s *Snapshot) owner(t thing) (Owner, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.owners[t]
	return o, ok
}

func (s *Snapshot) mark(t thing, o Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[t] = o
}

func (s *Snapshot) setOwners(owners map[thing]Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners = owners
}

func (s *Snapshot) block(t thing, why obstacle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked[t] = why
}

// obstacle returns what a Claim found in the way of w.
func (s *Snapshot) obstacle(w Want) (obstacle, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range w.things() {
		if why, is := s.blocked[s.normal(t)]; is {
			return why, true
		}
	}
	return obstacle{}, false
}

// blockedBy returns the names that a Claim could not get because of one owner.
func (s *Snapshot) blockedBy(o Owner) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for t, why := range s.blocked {
		if why.owner.ID == o.ID {
			out = append(out, t.name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// exists reports whether the database exists, or the account for one of its hosts.
func (s *Snapshot) exists(t thing, acc Account) bool {
	if t.kind == kindDatabase {
		return s.has(t.name)
	}
	hosts, _ := s.account(t.name)
	return slices.ContainsFunc(acc.hosts(), func(h string) bool { _, ok := hosts[h]; return ok })
}

// Age returns the age of the snapshot.
func (s *Snapshot) Age() time.Duration { return time.Since(s.taken) }

func (s *Snapshot) key(database string) string {
	if s.lower {
		return strings.ToLower(database)
	}
	return database
}

func (s *Snapshot) has(database string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.databases[s.key(database)]
}

func (s *Snapshot) created(database string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.databases[s.key(database)] = true
}

// account returns the hosts for which a user exists, and its password if that is known, otherwise "".
func (s *Snapshot) account(user string) (hosts map[string]credential, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.accounts[user]), s.passwords[user]
}

// made notes that the account exists for all its hosts, with its password.
func (s *Snapshot) made(acc Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounts[acc.User] == nil {
		s.accounts[acc.User] = map[string]credential{}
	}
	for _, h := range acc.hosts() {
		s.accounts[acc.User][h] = credential{}
	}
	s.passwords[acc.User] = acc.Password
}

// mayAll reports whether an account has all privileges on one of the quoted databases by a grant of its own. It returns false if that is not visible
// here (a grant on all databases, a role, an unreadable table); SHOW GRANTS decides then.
func (s *Snapshot) mayAll(ctx context.Context, a *Admin, u UserHost, databases ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grants == nil {
		s.grants = a.databaseGrants(ctx)
	}
	return slices.ContainsFunc(databases, func(d string) bool { return s.grants[u][d] })
}

// databaseGrants returns the databases, quoted, on which each account has all privileges. The columns of mysql.db differ between servers: all count
// except GRANT OPTION, as in SHOW GRANTS.
func (a *Admin) databaseGrants(ctx context.Context) map[UserHost]map[string]bool {
	out := map[UserHost]map[string]bool{}
	err := query(ctx, a.cfg, a.runs(), "SELECT * FROM mysql.db", nil, func(r *sql.Rows) error {
		row, err := Record(r)
		if err != nil {
			return err
		}
		all, privileges := true, 0
		for name, v := range row {
			if name != "grant_priv" && strings.HasSuffix(name, "_priv") {
				privileges++
				all = all && v == "Y"
			}
		}
		if u := (UserHost{row["user"], row["host"]}); all && privileges > 0 {
			if out[u] == nil {
				out[u] = map[string]bool{}
			}
			out[u]["`"+strings.ReplaceAll(row["db"], "`", "``")+"`"] = true
		}
		return nil
	})
	if err != nil {
		return map[UserHost]map[string]bool{} // it only saves other queries
	}
	return out
}

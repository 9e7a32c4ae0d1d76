// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	driverpkg "github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/internal/lists"
)

// OwnersDatabase is the schema that records, in its only table `owners`, which cloud each database and account belongs to.
const OwnersDatabase = "ocadm"

const ownersTable = "`" + OwnersDatabase + "`.`owners`"

// createOwners creates a table with one row per database and account; the primary key lets exactly one cloud claim a name.
const createOwners = "CREATE TABLE IF NOT EXISTS " + ownersTable + ` (
  kind VARCHAR(16) NOT NULL, name VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL, namespace VARCHAR(63) NOT NULL, cloud VARCHAR(253) NOT NULL,
  since TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (kind, name)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`

// Owner is the cloud that databases and accounts belong to. Two owners are the same if their IDs are equal.
type Owner struct {
	// ID is unique among all clouds that may ever use the server.
	ID string
	// Namespace and Name are for people.
	Namespace, Name string
}

// String returns namespace/name/id, the form used in errors and in Adoption.From.
func (o Owner) String() string { return o.Namespace + "/" + o.Name + "/" + o.ID }

// Adoption lists what a user has allowed a cloud to adopt.
type Adoption struct {
	// Names lists databases and accounts that exist and belong to no cloud.
	Names []string
	// From lists other owners, in the form of Owner.String.
	From []string
}

// Want is what a cloud needs for one component: an account and its databases.
type Want struct {
	Account   Account
	Databases []string
}

type kind string

const (
	kindDatabase kind = "database"
	kindAccount  kind = "account"
)

// thing is a database or an account that a marker names.
type thing struct {
	kind kind
	name string
}

func (t thing) String() string { return fmt.Sprintf("%s %q", t.kind, t.name) }

func (w Want) things() []thing {
	out := lists.Map(w.Databases, func(n string) thing { return thing{kindDatabase, n} })
	if w.Account.User != "" {
		out = append(out, thing{kindAccount, w.Account.User})
	}
	return out
}

// NotOurs is wrapped by an Error of class Foreign.
type NotOurs struct {
	// Names lists, sorted, all databases and accounts that the cloud wants and that belong to the same owner.
	Names []string
	// Owner is the other cloud; zero if there is none.
	Owner Owner
}

func (e *NotOurs) Error() string { return strings.Join(e.Names, ", ") + ": not owned by this cloud" }

// owners reads the markers. A server that has never had a cloud has no such table.
func (a *Admin) owners(ctx context.Context) (map[thing]Owner, bool, error) {
	out := map[thing]Owner{}
	err := query(ctx, a.cfg, a.runs(), "SELECT kind, name, id, namespace, cloud FROM "+ownersTable, nil, func(r *sql.Rows) error {
		var t thing
		var o Owner
		err := r.Scan(&t.kind, &t.name, &o.ID, &o.Namespace, &o.Name)
		out[t] = o
		return err
	})
	if my, ok := errors.AsType[*driverpkg.MySQLError](err); ok && (my.Number == noSuchDatabase || my.Number == noSuchTable) {
		return out, false, nil
	}
	if err != nil {
		return nil, false, a.fail("reading the owners of the databases", err, NoTable)
	}
	return out, true, nil
}

const (
	noSuchDatabase = 1049
	noSuchTable    = 1146
)

// Claim marks what the cloud wants as its own, as far as allowed: what does not exist yet, what a user lets it adopt, and an existing account, with
// its databases, that accepts the cloud's own password. It leaves everything else alone; EnsureDatabase and EnsureAccount refuse it. It runs one
// statement for all, so call it with everything that the cloud needs.
func (a *Admin) Claim(ctx context.Context, snap *Snapshot, wants ...Want) error {
	var fresh []thing
	for _, w := range wants {
		things, err := a.claimable(ctx, snap, w)
		if err != nil {
			return err
		}
		fresh = lists.Unique(append(fresh, things...))
	}
	if len(fresh) == 0 {
		return nil
	}
	return a.mark(ctx, snap, fresh)
}

// claimable returns the things of a component that still have to be marked, or nothing if one of them may not be.
func (a *Admin) claimable(ctx context.Context, snap *Snapshot, w Want) ([]thing, error) {
	var fresh, doubtful []thing
	var why *obstacle
	for _, t := range w.things() {
		t = snap.normal(t)
		owner, marked := snap.owner(t)
		switch {
		case marked && owner.ID == a.cfg.Owner.ID:
		case marked && slices.Contains(a.cfg.Adopt.From, owner.String()):
			if err := a.takeOver(ctx, snap, t, owner); err != nil {
				return nil, err
			}
		case marked:
			why = &obstacle{t, owner}
		case snap.exists(t, w.Account) && !slices.Contains(a.cfg.Adopt.Names, t.name):
			doubtful = append(doubtful, t)
		default:
			fresh = append(fresh, t)
		}
	}
	if why == nil && len(doubtful) > 0 {
		proven, err := a.proven(ctx, snap, w)
		if err != nil {
			return nil, err
		}
		if !proven {
			why = &obstacle{thing: doubtful[0]}
		}
	}
	fresh = append(fresh, doubtful...)
	if why == nil {
		return fresh, nil
	}
	for _, t := range fresh {
		snap.block(t, *why)
	}
	snap.block(why.thing, *why)
	return nil, nil
}

// obstacle is a thing that keeps a component from its databases and account, with its owner; the owner is zero if there is none.
type obstacle struct {
	thing thing
	owner Owner
}

func (o obstacle) String() string {
	if o.owner.ID != "" {
		return fmt.Sprintf("%s belongs to cloud %s", o.thing, o.owner)
	}
	return o.thing.String() + " exists, but this cloud did not create it"
}

// proven reports whether the existing account belongs to this cloud: it can log in to each of its existing databases with the password that only this
// cloud knows. This holds for accounts made by earlier releases, and for those that were adopted with their passwords.
func (a *Admin) proven(ctx context.Context, snap *Snapshot, w Want) (bool, error) {
	if w.Account.User == "" || w.Account.Password == "" || !snap.exists(thing{kindAccount, w.Account.User}, w.Account) {
		return false, nil
	}
	databases := slices.DeleteFunc(slices.Clone(w.Databases), func(n string) bool { return !snap.has(n) })
	if len(databases) == 0 {
		databases = []string{""}
	}
	for _, d := range databases {
		switch err := verifyLogin(ctx, a.cfg, w.Account.User, w.Account.Password, d); ClassOf(err) {
		case "":
		case Unreachable, TooManyConnections, Canceled:
			return false, err
		default:
			return false, nil
		}
	}
	return true, nil
}

// mark records the things as this cloud's. If another cloud was faster, its marker stays.
func (a *Admin) mark(ctx context.Context, snap *Snapshot, things []thing) error {
	op := "recording which databases belong to the cloud"
	if !snap.marking.Load() {
		if err := exec(ctx, a.cfg, a.runs(), "CREATE DATABASE IF NOT EXISTS `"+OwnersDatabase+"` CHARACTER SET utf8mb4"); err != nil {
			return a.fail(op, err, NoCreate)
		}
		if err := exec(ctx, a.cfg, a.runs(), createOwners); err != nil {
			return a.fail(op, err, NoTable)
		}
		snap.marking.Store(true)
	}
	var rows []string
	var args []any
	for _, t := range things {
		rows = append(rows, "(?,?,?,?,?)")
		args = append(args, t.kind, t.name, a.cfg.Owner.ID, a.cfg.Owner.Namespace, a.cfg.Owner.Name)
	}
	a.cfg.count("INSERT")
	res, err := a.runs().ExecContext(ctx, "INSERT IGNORE INTO "+ownersTable+" (kind, name, id, namespace, cloud) VALUES "+strings.Join(rows, ","), args...)
	if err != nil {
		return a.fail(op, err, NoTable)
	}
	if n, err := res.RowsAffected(); err == nil && n == int64(len(things)) {
		for _, t := range things {
			snap.mark(t, a.cfg.Owner)
		}
		return nil
	}
	owners, _, err := a.owners(ctx)
	if err != nil {
		return err
	}
	snap.setOwners(owners)
	return nil
}

// takeOver transfers the marker of another cloud to this one.
func (a *Admin) takeOver(ctx context.Context, snap *Snapshot, t thing, from Owner) error {
	err := exec(ctx, a.cfg, a.runs(), "UPDATE "+ownersTable+" SET id = ?, namespace = ?, cloud = ? WHERE kind = ? AND name = ? AND id = ?",
		a.cfg.Owner.ID, a.cfg.Owner.Namespace, a.cfg.Owner.Name, t.kind, t.name, from.ID)
	if err != nil {
		return a.fail("taking over "+t.String(), err, NoTable)
	}
	snap.mark(t, a.cfg.Owner)
	return nil
}

// own claims one thing that was not claimed before, and returns an error if it is not the cloud's.
func (a *Admin) own(ctx context.Context, op string, snap *Snapshot, w Want) error {
	if a.cfg.Owner.ID == "" {
		return a.refuse(op, "no owner is set")
	}
	// What an earlier Claim has refused stays refused.
	if why, is := snap.obstacle(w); is {
		return a.foreign(op, snap, why)
	}
	if err := a.Claim(ctx, snap, w); err != nil {
		return err
	}
	if why, is := snap.obstacle(w); is {
		return a.foreign(op, snap, why)
	}
	for _, t := range w.things() {
		if owner, _ := snap.owner(snap.normal(t)); owner.ID != a.cfg.Owner.ID { // the other cloud was faster
			return a.foreign(op, snap, obstacle{t, owner})
		}
	}
	return nil
}

func (a *Admin) foreign(op string, snap *Snapshot, why obstacle) error {
	return &Error{Class: Foreign, Op: op, Server: a.cfg.Addr(), User: a.cfg.User, Detail: why.String(),
		err: &NotOurs{Names: snap.blockedBy(why.owner), Owner: why.owner}}
}

// Owned returns the databases and accounts that carry this cloud's marker, sorted.
func (a *Admin) Owned(ctx context.Context) (databases, accounts []string, err error) {
	owners, _, err := a.owners(ctx)
	for t, o := range owners {
		switch {
		case o.ID != a.cfg.Owner.ID:
		case t.kind == kindDatabase:
			databases = append(databases, t.name)
		case t.kind == kindAccount:
			accounts = append(accounts, t.name)
		}
	}
	slices.Sort(databases)
	slices.Sort(accounts)
	return databases, accounts, err
}

// DropOwned drops every database and account that carries this cloud's marker, each followed by its marker, and nothing else.
func (a *Admin) DropOwned(ctx context.Context) error {
	if a.cfg.Owner.ID == "" {
		return a.refuse("dropping the databases of the cloud", "no owner is set")
	}
	databases, accounts, err := a.Owned(ctx)
	if err != nil {
		return err
	}
	for _, name := range databases {
		if err := a.dropDatabase(ctx, name); err != nil {
			return err
		}
	}
	for _, user := range accounts {
		if err := a.dropAccount(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

func (a *Admin) unmark(ctx context.Context, t thing) error {
	err := exec(ctx, a.cfg, a.runs(), "DELETE FROM "+ownersTable+" WHERE kind = ? AND name = ? AND id = ?", t.kind, t.name, a.cfg.Owner.ID)
	if err != nil {
		return a.fail("removing the owner record of "+t.String(), err, NoTable)
	}
	return nil
}

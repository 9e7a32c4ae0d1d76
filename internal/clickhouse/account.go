// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Account is the database user of a service.
type Account struct {
	User     string
	Password string
	// Database is the database in which the account may create, fill, read and drop tables.
	Database string
}

// fromMySQL lets an account read tables of MySQL, from which services migrate their operation logs.
const fromMySQL = "MYSQL"

// privileges lists a service's privileges on its database. They are listed one by one: ALL includes privileges on accounts and collections, and an
// administrator who lacks any of those cannot grant it.
var privileges = []string{
	"SHOW", "SELECT", "INSERT", "ALTER", "CREATE TABLE", "CREATE VIEW", "CREATE DICTIONARY", "DROP TABLE", "DROP VIEW", "DROP DICTIONARY",
	"TRUNCATE", "OPTIMIZE", "dictGet",
}

// hash returns the form in which the server receives and stores a password.
func hash(password string) string {
	if password == "" {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(password)))
}

// EnsureAccount makes sure that the user exists, with that password and with a service's privileges on its database. It never revokes anything, so a
// running service keeps its connections.
func (a *Admin) EnsureAccount(ctx context.Context, snap *Snapshot, acc Account) (changed bool, err error) {
	op := fmt.Sprintf("creating account %q", acc.User)
	user, database, err := a.checkAccount(op, acc)
	if err != nil {
		return false, err
	}
	identified := " IDENTIFIED WITH sha256_hash BY " + quoteString(hash(acc.Password))
	known := snap.knows(acc.User)
	if !known {
		err := a.exec(ctx, op, "CREATE USER "+user+identified, acc.Password, hash(acc.Password))
		if known = isCode(err, codeExists); err != nil && !known {
			return false, err
		}
		changed = !known
	}
	if known {
		set, err := a.syncPassword(ctx, acc, "ALTER USER "+user+identified)
		changed = changed || set
		if err != nil {
			return changed, err
		}
	}
	snap.made(acc.User)
	missing := func(p string) bool { return !snap.may(acc.User, p, acc.Database) }
	if !slices.ContainsFunc(privileges, missing) && !missing(fromMySQL) {
		return changed, nil
	}
	op = fmt.Sprintf("granting account %q its database %q", acc.User, acc.Database)
	grant := "GRANT " + strings.Join(privileges, ", ") + " ON " + database + ".*, " + fromMySQL + " ON *.* TO " + user
	if err := a.exec(ctx, op, grant); err != nil {
		return changed, err
	}
	return true, nil
}

func (a *Admin) checkAccount(op string, acc Account) (user, database string, err error) {
	if user, err = quoteIdent(acc.User); err != nil {
		return "", "", a.refuse(op, err.Error())
	}
	if database, err = a.ours(op, acc.Database); err != nil {
		return "", "", err
	}
	switch {
	case acc.Password == "":
		return "", "", a.refuse(op, "an account needs a password")
	case a.protected(acc.User):
		return "", "", a.refuse(op, "it is an administrator account")
	}
	return user, database, nil
}

func (a *Admin) protected(user string) bool { return user == defaultUser || user == a.cfg.user() }

// syncPassword sets the password of an existing account if it differs. The stored password cannot be read, so it logs in to find out.
func (a *Admin) syncPassword(ctx context.Context, acc Account, alter string) (changed bool, err error) {
	err = a.VerifyAccount(ctx, acc)
	if ClassOf(err) != AccessDenied {
		return false, err
	}
	op := fmt.Sprintf("setting the password of account %q", acc.User)
	if err := a.exec(ctx, op, alter, acc.Password, hash(acc.Password)); err != nil {
		return false, err
	}
	if err := a.VerifyAccount(ctx, acc); err != nil {
		return true, fmt.Errorf("%w; its password was just set: check whether the account may log in from this address", err)
	}
	return true, nil
}

// VerifyAccount logs in as the account. It writes nothing.
func (a *Admin) VerifyAccount(ctx context.Context, acc Account) error {
	c := a.cfg
	c.User, c.Password = acc.User, acc.Password
	client, err := c.connect(ctx, acc.User, acc.Password, "")
	if err != nil {
		return c.newError(fmt.Sprintf("logging in as %q", acc.User), err)
	}
	_ = client.Close() // the login has succeeded
	return nil
}

// DropAccount drops the user if it exists.
func (a *Admin) DropAccount(ctx context.Context, snap *Snapshot, user string) error {
	op := fmt.Sprintf("dropping account %q", user)
	quoted, err := quoteIdent(user)
	if err != nil {
		return a.refuse(op, err.Error())
	}
	if a.protected(user) {
		return a.refuse(op, "it is an administrator account")
	}
	if !snap.knows(user) {
		return nil
	}
	return a.exec(ctx, op, "DROP USER IF EXISTS "+quoted)
}

// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"crypto/sha1" //nolint:gosec // the server uses this password scheme
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DefaultHosts returns the hosts that a service's account may connect from. The two loopback addresses keep it from being shadowed by an anonymous
// account of the server's own host.
func DefaultHosts() []string { return []string{"%", "127.0.0.1", "::1"} }

// Account is the database user of a service.
type Account struct {
	User     string
	Password string
	// Hosts is DefaultHosts when empty.
	Hosts []string
	// Database is the database on which the account has all privileges.
	Database string
}

func (acc Account) hosts() []string {
	if len(acc.Hosts) == 0 {
		return DefaultHosts()
	}
	return acc.Hosts
}

// UserHost is an account as the server stores it.
type UserHost struct {
	User string `json:"user"`
	Host string `json:"host"`
}

func (u UserHost) String() string { return QuoteString(u.User) + "@" + QuoteString(u.Host) }

// Accounts lists every account of the server, sorted.
func (a *Admin) Accounts(ctx context.Context) ([]UserHost, error) {
	var out []UserHost
	err := query(ctx, a.cfg, a.runs(), "SELECT User, Host FROM mysql.user ORDER BY User, Host", nil, func(r *sql.Rows) error {
		var u UserHost
		err := r.Scan(&u.User, &u.Host)
		out = append(out, u)
		return err
	})
	if err != nil {
		return nil, a.fail("listing accounts", err, NoCreateUser)
	}
	return out, nil
}

// EnsureAccount makes sure that the user exists for each of its hosts, with the password and all privileges on its database. It never drops anything,
// so a running service keeps its connections. For an account that belongs to another owner it returns an error of class Foreign. It takes a snapshot
// if snap is nil.
func (a *Admin) EnsureAccount(ctx context.Context, snap *Snapshot, acc Account) (changed bool, err error) {
	if err := a.checkAccount(creating(acc), acc); err != nil {
		return false, err
	}
	if snap != nil {
		changed, err := a.ensureAccount(ctx, snap, acc, "CREATE USER ")
		if e, ok := errors.AsType[*Error](err); !ok || e.Number != accountExists {
			return changed, err
		}
		// Another client has created the user meanwhile, with an unknown password: look again.
	}
	if snap, err = a.Snapshot(ctx); err != nil {
		return false, err
	}
	return a.ensureAccount(ctx, snap, acc, "CREATE USER IF NOT EXISTS ")
}

// accountExists is the server's error number for a user that could not be created (or altered, or dropped).
const accountExists = 1396

func creating(acc Account) string { return fmt.Sprintf("creating account %q", acc.User) }

func (a *Admin) ensureAccount(ctx context.Context, snap *Snapshot, acc Account, create string) (changed bool, err error) {
	if err := a.own(ctx, creating(acc), snap, Want{Account: acc}); err != nil {
		return false, err
	}
	have, known := snap.account(acc.User)
	var old, fresh []string
	for _, host := range acc.hosts() {
		if _, ok := have[host]; ok {
			old = append(old, host)
		} else {
			fresh = append(fresh, host)
		}
	}
	if len(fresh) > 0 {
		list, args := eachHost(acc.User, fresh, " IDENTIFIED BY ?", acc.Password)
		if err := exec(ctx, a.cfg, a.runs(), create+list+a.lasting(), args...); err != nil {
			return changed, a.fail(creating(acc), err, NoCreateUser, acc.Password)
		}
		changed = true
	}
	if known != acc.Password {
		reset, err := a.syncPassword(ctx, acc, old, have)
		changed = changed || reset
		if err != nil {
			return changed, err
		}
	}
	snap.made(acc)
	granted, err := a.ensureGrants(ctx, snap, acc, old, fresh)
	return changed || granted, err
}

// lasting returns the clause that exempts accounts from a server's password expiration policy: the passwords of services are not changed regularly.
func (a *Admin) lasting() string {
	if a.info.Flavour == MariaDB && a.info.Major == 10 && a.info.Minor < 4 { // it has neither
		return ""
	}
	return " PASSWORD EXPIRE NEVER"
}

// eachHost lists an account for several hosts in one statement: "?@? IDENTIFIED BY ?, ?@? IDENTIFIED BY ?".
func eachHost(user string, hosts []string, clause string, values ...any) (list string, args []any) {
	for i, host := range hosts {
		if i > 0 {
			list += ", "
		}
		list += "?@?" + clause
		args = append(append(args, user, host), values...)
	}
	return list, args
}

func (a *Admin) checkAccount(op string, acc Account) error {
	for _, host := range acc.hosts() {
		if err := checkUser(acc.User, host); err != nil {
			return a.refuse(op, err.Error())
		}
	}
	if _, err := QuoteIdent(acc.Database); err != nil {
		return a.refuse(op, err.Error())
	}
	switch {
	case acc.Password == "":
		return a.refuse(op, "an account needs a password")
	case slices.Contains(systemSchemas, strings.ToLower(acc.Database)):
		return a.refuse(op, fmt.Sprintf("the name of database %q is reserved", acc.Database))
	case protected(acc.User, a.cfg.User):
		return a.refuse(op, "it is an administrator account")
	}
	return nil
}

// Administers reports whether a user is an administrator of the server, not the account of a service.
func (a *Admin) Administers(user string) bool { return protected(user, a.cfg.User) }

func protected(user, admin string) bool {
	return user == admin || user == "root" || user == "mariadb.sys" || strings.HasPrefix(user, "mysql.")
}

type credential struct{ plugin, hash string }

// syncPassword resets the password of the existing hosts if it differs. For the host that this connection comes from, it checks by logging in; for
// the others it compares the stored hash if that has no salt. If the login fails, it resets all of them, which is harmless.
func (a *Admin) syncPassword(ctx context.Context, acc Account, hosts []string, have map[string]credential) (changed bool, err error) {
	if len(hosts) == 0 {
		return false, nil
	}
	op := fmt.Sprintf("setting the password of account %q", acc.User)
	stale := hosts
	switch err := verifyLogin(ctx, a.cfg, acc.User, acc.Password, ""); ClassOf(err) {
	case "":
		native := nativeHash(acc.Password)
		stale = slices.DeleteFunc(slices.Clone(hosts), func(h string) bool {
			c := have[h]
			return c.plugin != "" && c.plugin != "mysql_native_password" || c.hash == native
		})
	case AccessDenied, PasswordExpired, HostNotAllowed, UnsupportedAuth, Other:
	default:
		return false, err
	}
	if len(stale) == 0 {
		return false, nil
	}
	list, args := eachHost(acc.User, stale, " IDENTIFIED BY ?", acc.Password)
	if err := exec(ctx, a.cfg, a.runs(), "ALTER USER "+list+a.lasting(), args...); err != nil {
		return false, a.fail(op, err, NoCreateUser, acc.Password)
	}
	return true, nil
}

// nativeHash returns the unsalted hash that mysql_native_password stores.
func nativeHash(password string) string {
	once := sha1.Sum([]byte(password)) //nolint:gosec // see above
	twice := sha1.Sum(once[:])         //nolint:gosec // see above
	return "*" + strings.ToUpper(hex.EncodeToString(twice[:]))
}

// ensureGrants grants the missing privileges. It does not query the grants of accounts that were just created, because they have none yet.
func (a *Admin) ensureGrants(ctx context.Context, snap *Snapshot, acc Account, old, fresh []string) (changed bool, err error) {
	op := fmt.Sprintf("granting account %q all on database %q", acc.User, acc.Database)
	plain, err := QuoteIdent(acc.Database)
	if err != nil {
		return false, a.refuse(op, err.Error())
	}
	target := plain
	if !a.info.PartialRevokes {
		if target, err = quotePattern(acc.Database); err != nil {
			return false, a.refuse(op, err.Error())
		}
	}
	missing := slices.Clone(fresh)
	for _, host := range old {
		if snap.mayAll(ctx, a, UserHost{User: acc.User, Host: host}, plain, target) {
			continue
		}
		grants, err := strings1(ctx, a.cfg, a.runs(), "SHOW GRANTS FOR ?@?", acc.User, host)
		if err != nil {
			return false, a.fail(op, err, NoGrantOption, acc.Password)
		}
		if !hasAll(grants, plain, target) {
			missing = append(missing, host)
		}
	}
	if len(missing) == 0 {
		return false, nil
	}
	list, args := eachHost(acc.User, missing, "")
	if err := exec(ctx, a.cfg, a.runs(), "GRANT ALL PRIVILEGES ON "+target+".* TO "+list, args...); err != nil {
		return false, a.fail(op, err, NoGrantOption, acc.Password)
	}
	return true, nil
}

// hasAll reports whether one of the grants (as SHOW GRANTS prints them) covers all privileges on one of the quoted databases, or on all databases.
func hasAll(grants []string, databases ...string) bool {
	return slices.ContainsFunc(grants, func(g string) bool {
		rest, all := strings.CutPrefix(g, "GRANT ALL PRIVILEGES ON ")
		return all && slices.ContainsFunc(append(databases, "*"), func(d string) bool { return strings.HasPrefix(rest, d+".* TO ") })
	})
}

// VerifyAccount logs in as the account, and into its database if it names one. It writes nothing.
func (a *Admin) VerifyAccount(ctx context.Context, acc Account) error {
	return verifyLogin(ctx, a.cfg, acc.User, acc.Password, acc.Database)
}

// verifyLogin opens a new connection, so it also detects an anonymous account that shadows this one.
func verifyLogin(ctx context.Context, cfg Config, user, password, database string, statements ...string) error {
	op := fmt.Sprintf("logging in as %q", user)
	login := cfg.as(user, password, database)
	db, err := login.open()
	if err != nil {
		return login.newError(op, err, "")
	}
	defer db.Close()
	login.count("SELECT")
	var current string
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&current); err != nil {
		return login.newError(op, err, AccessDenied)
	}
	if i := strings.LastIndexByte(current, '@'); i < 0 || current[:i] != user {
		return &Error{Class: AccessDenied, Op: op, Server: cfg.Addr(), User: user, Account: quoteAccount(current),
			Detail: "the server logged the client in as " + quoteAccount(current)}
	}
	for _, s := range statements {
		if err := exec(ctx, login, db, s); err != nil {
			e := login.newError("using the granted privileges", err, NoGrantOption)
			if e.Class == NoGrantOption {
				e.Account = quoteAccount(current)
			}
			return e
		}
	}
	return nil
}

// dropAccount drops the user for the default hosts, whoever owns it, and removes this cloud's marker.
func (a *Admin) dropAccount(ctx context.Context, user string) error {
	op := fmt.Sprintf("dropping account %q", user)
	if protected(user, a.cfg.User) {
		return a.refuse(op, "it is an administrator account")
	}
	list, args := eachHost(user, DefaultHosts(), "")
	if err := exec(ctx, a.cfg, a.runs(), "DROP USER IF EXISTS "+list, args...); err != nil {
		return a.fail(op, err, NoCreateUser)
	}
	return a.unmark(ctx, thing{kindAccount, user})
}

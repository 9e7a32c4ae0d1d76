// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	driverpkg "github.com/go-sql-driver/mysql"

	"yunion.io/x/ocadm/internal/statement"
)

// Class is the class of an Error.
type Class string

const (
	Unreachable        Class = "Unreachable"
	AccessDenied       Class = "AccessDenied"
	HostNotAllowed     Class = "HostNotAllowed"
	HostBlocked        Class = "HostBlocked"
	AccountLocked      Class = "AccountLocked"
	PasswordExpired    Class = "PasswordExpired"
	UnsupportedAuth    Class = "UnsupportedAuth"
	TLSFailed          Class = "TLSFailed"
	TooManyConnections Class = "TooManyConnections"
	TooOld             Class = "TooOld"
	ReadOnly           Class = "ReadOnly"
	NoCreate           Class = "NoCreate"
	NoCreateUser       Class = "NoCreateUser"
	NoGrantOption      Class = "NoGrantOption"
	NoTable            Class = "NoTable"
	WeakPassword       Class = "WeakPassword"
	// NeedsKeys means that the server refuses tables without a primary key, which some services have.
	NeedsKeys Class = "NeedsKeys"
	// NoCollation means that the server lacks a character set or a collation that tables use.
	NoCollation Class = "NoCollation"
	Refused     Class = "Refused"
	// Full means that the server has no space left.
	Full Class = "Full"
	// TooLong means that a row is larger than the packets that the server accepts.
	TooLong Class = "TooLong"
	// Locked means that another run holds the lock.
	Locked Class = "Locked"
	// Foreign means that a database or account exists and is not the cloud's; the Error wraps a NotOurs.
	Foreign  Class = "Foreign"
	Canceled Class = "Canceled"
	Other    Class = "Other"
)

// Error is a failed operation on a server. It never holds a secret.
type Error struct {
	Class Class
	// Op is the failed operation, in the gerund: `creating database "glance"`.
	Op string
	// Server is host:port.
	Server string
	// User is the configured user.
	User string
	// Account is the account as the server knows it, 'root'@'10.0.0.9', if the server named it.
	Account string
	// Number is the server's error number, 0 if the error is not from the server.
	Number uint16
	// Detail is the message of the server or the network, without secrets.
	Detail string

	err   error
	plain bool // TLS was disabled
}

func (e *Error) Error() string {
	s := e.Op + " on " + e.Server
	if e.Account != "" {
		s += " as " + e.Account
	}
	return s + ": " + e.Detail
}

// Unwrap returns the error of the network or the context. It does not return the server's own error, which may quote a statement.
func (e *Error) Unwrap() error { return e.err }

// ClassOf returns the class of the first Error in err's chain, or "".
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ""
}

// IsUnavailable reports whether a later attempt may succeed without a change to the accounts.
func IsUnavailable(err error) bool {
	return slices.Contains([]Class{Unreachable, TooManyConnections, ReadOnly}, ClassOf(err))
}

// IsDenied reports whether the server refuses the administrator's login. Nothing works until the account is fixed.
func IsDenied(err error) bool {
	e, ok := errors.AsType[*Error](err)
	classes := []Class{AccessDenied, HostNotAllowed, HostBlocked, AccountLocked, PasswordExpired, UnsupportedAuth, TLSFailed, TooOld}
	return ok && e.Op == opConnect && slices.Contains(classes, e.Class)
}

const passwordPlaceholder = "'<password>'"

// Remedy returns what to do about the error: for privileges the exact statements to run on the server, with a placeholder for the password.
func (e *Error) Remedy() string {
	account := cmp.Or(e.Account, QuoteString(e.User)+"@'%'")
	create := "CREATE USER IF NOT EXISTS " + account + " IDENTIFIED BY " + passwordPlaceholder + ";"
	alter := "ALTER USER " + account + " IDENTIFIED BY " + passwordPlaceholder + ";"
	grant := "GRANT ALL PRIVILEGES ON *.* TO " + account + " WITH GRANT OPTION;"
	run := func(statements ...string) string {
		return "run on the database server as its administrator:\n  " + strings.Join(statements, "\n  ")
	}
	switch e.Class {
	case Unreachable:
		if e.Number != 0 {
			return "wait until the server is ready, or use another member of its cluster; its log shows what it waits for"
		}
		host, port, _ := net.SplitHostPort(e.Server)
		if name, namespace, _ := strings.Cut(strings.TrimSuffix(host, ".svc"), "."); strings.HasSuffix(host, ".svc") { // no machine resolves it
			return fmt.Sprintf("check that the Service has endpoints: kubectl -n %s describe service %s", namespace, name)
		}
		return fmt.Sprintf("check that a server listens on %s (its bind-address, firewalls in between): timeout 3 bash -c '</dev/tcp/%s/%s'", e.Server, host, port)
	case AccessDenied:
		return e.deniedRemedy()
	case HostNotAllowed:
		return run(create, grant)
	case HostBlocked:
		return run("FLUSH HOSTS;  -- MariaDB", "TRUNCATE TABLE performance_schema.host_cache;  -- MySQL")
	case AccountLocked:
		return run("ALTER USER " + account + " ACCOUNT UNLOCK;")
	case PasswordExpired:
		return run(alter)
	case UnsupportedAuth:
		return run("ALTER USER "+account+" IDENTIFIED VIA mysql_native_password USING PASSWORD("+passwordPlaceholder+");  -- MariaDB",
			"ALTER USER "+account+" IDENTIFIED WITH caching_sha2_password BY "+passwordPlaceholder+";  -- MySQL 8")
	case TLSFailed:
		return "match the TLS settings of client and server (--mysql-tls, spec.mysql.tls.mode): " +
			"provide the CA that signed the server's certificate, or choose preferred if the server has no TLS"
	case TooManyConnections:
		return run("SET GLOBAL max_connections = 1000;") + "\nand set max_connections in the server's configuration"
	case TooOld:
		return fmt.Sprintf("use MySQL %s or MariaDB %s, or newer", minMySQL, minMariaDB)
	case ReadOnly:
		return "use the address of the primary; only if this server is no replica, make it writable: SET GLOBAL read_only = OFF;"
	case NoCreate, NoCreateUser, NoGrantOption, NoTable:
		return run(grant)
	case Full:
		return "make room in the data directory of the database server (SELECT @@datadir), or enlarge its volume"
	case TooLong:
		return run("SET GLOBAL max_allowed_packet = 1073741824;") + "\nand set max_allowed_packet=1G in the server's configuration"
	case Locked:
		return "wait for the other run to end, or stop it, then run the command again; the server releases the lock of a dead run within a minute"
	case NeedsKeys:
		return run("SET GLOBAL innodb_force_primary_key = OFF;  -- MariaDB", "SET GLOBAL sql_require_primary_key = OFF;  -- MySQL") +
			"\nand remove the setting from the server's configuration; if the server is part of a cluster that needs such keys, use another one"
	case NoCollation:
		return "use a server of the same product and version as the one that the databases come from; MySQL and MariaDB have different collations"
	case WeakPassword:
		return "the server's password policy rejects the generated passwords; relax it: validate_password (MySQL), simple_password_check (MariaDB)"
	}
	return ""
}

// deniedRemedy advises first to correct the password: a wrong one is by far the usual cause. The server names the client's address, not the host of
// the account that it found: statements for the address would create a second account, which then hides 'USER'@'%' on this machine only.
func (e *Error) deniedRemedy() string {
	password := "correct the password (--mysql-password-file FILE)"
	if strings.Contains(e.Detail, "using password: NO") {
		password = "no password was given: give it with --mysql-password-file FILE"
	}
	if e.plain { // MariaDB then returns the same error
		password = "if the server requires TLS (require_secure_transport), omit --mysql-tls disabled (spec.mysql.tls.mode); otherwise " + password
	}
	user := QuoteString(e.User)
	account := user + "@'%'"
	return password + "\nif the password is right, look on the database server for the account: SELECT user, host FROM mysql.user WHERE user = " + user + ";\n" +
		"if it exists, change its password under the host that is listed, for example:\n  ALTER USER " + account + " IDENTIFIED BY " + passwordPlaceholder + ";\n" +
		"only if it does not exist:\n  CREATE USER " + account + " IDENTIFIED BY " + passwordPlaceholder + ";\n  GRANT ALL PRIVILEGES ON *.* TO " + account +
		" WITH GRANT OPTION;"
}

var (
	// "Access denied for user 'root'@'10.0.0.9' (using password: YES)"; "... to database 'x'".
	deniedAccount = regexp.MustCompile(`for user '((?:[^']|'')*)'@'((?:[^']|'')*)'`)
	// "Host '10.0.0.9' is not allowed to connect to this MariaDB server".
	deniedHost = regexp.MustCompile(`[Hh]ost '([^']*)'`)
)

// noSpace matches how storage engines quote the operating system: "Got error 28 from storage engine", "Errcode: 28 "No space left on device"".
var noSpace = regexp.MustCompile(`(?:[Ee]rrcode: |[Ee]rror:? )28\b`)

// newError classifies an error of the driver. denied is the class to use if this operation failed for lack of privileges.
func (c Config) newError(op string, err error, denied Class, secrets ...string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Op: op, Server: c.Addr(), User: c.User, Class: Other, Detail: err.Error(), err: err, plain: c.TLS == TLSDisabled}
	my, fromServer := errors.AsType[*driverpkg.MySQLError](err)
	if !fromServer {
		e.Class, e.Detail = networkClass(err)
		e.Detail = statement.Redact(e.Detail, append(secrets, c.Password)...)
		return e
	}
	e.err = nil
	e.Number = my.Number
	e.Class = serverClass(my, denied)
	if m := deniedAccount.FindStringSubmatch(my.Message); m != nil {
		e.Account = QuoteString(m[1]) + "@" + QuoteString(m[2])
	} else if m := deniedHost.FindStringSubmatch(my.Message); m != nil && (e.Class == HostNotAllowed || e.Class == HostBlocked) {
		e.Account = QuoteString(c.User) + "@" + QuoteString(m[1])
	}
	e.Detail = statement.Redact(serverDetail(my), append(secrets, c.Password)...)
	return e
}

// serverDetail returns the server's message, or a fixed text where the message would quote the statement.
func serverDetail(my *driverpkg.MySQLError) string {
	switch my.Number {
	case 1064:
		return "the server rejects the syntax of the statement (1064)"
	case 1149:
		return "syntax error (1149)"
	}
	return fmt.Sprintf("%s (%d)", my.Message, my.Number)
}

// classes maps the server's error numbers; all others are Other.
var classes = map[uint16]Class{
	1045: AccessDenied, 1698: AccessDenied, 1130: HostNotAllowed, 1129: HostBlocked, 3118: AccountLocked, 4151: AccountLocked,
	1820: PasswordExpired, 1862: PasswordExpired, 1040: TooManyConnections, 1203: TooManyConnections, 1226: TooManyConnections,
	1047: Unreachable, 1053: Unreachable, // a member of a Galera cluster that is not ready, a server that stops
	1836: ReadOnly, 1819: WeakPassword, 3159: TLSFailed, 1759: TLSFailed,
	1021: Full, 1114: Full, // the disk, or the tablespace
	1115: NoCollation, 1273: NoCollation, 1153: TooLong,
	1173: NeedsKeys, 3750: NeedsKeys, 3098: NeedsKeys, // the last one: group replication
}

// refusals lists the error numbers for lack of privileges.
var refusals = []uint16{1044, 1142, 1227, 1370, 1410, 1396, 1221}

func serverClass(my *driverpkg.MySQLError, denied Class) Class {
	switch {
	case noSpace.MatchString(my.Message):
		return Full
	case my.Number == 1290 && (strings.Contains(my.Message, "read-only") || strings.Contains(my.Message, "read_only")):
		return ReadOnly
	case my.Number == 1105 && strings.Contains(my.Message, "without an explicit primary key"): // Percona XtraDB Cluster
		return NeedsKeys
	case slices.Contains(refusals, my.Number):
		return cmp.Or(denied, Other)
	}
	return cmp.Or(classes[my.Number], Other)
}

func networkClass(err error) (Class, string) {
	if errors.Is(err, context.Canceled) {
		return Canceled, "canceled"
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	if untrusted || plain || alert || errors.Is(err, driverpkg.ErrNoTLS) {
		return TLSFailed, err.Error()
	}
	for _, e := range []error{driverpkg.ErrNativePassword, driverpkg.ErrOldPassword, driverpkg.ErrCleartextPassword, driverpkg.ErrUnknownPlugin} {
		if errors.Is(err, e) {
			return UnsupportedAuth, "this client does not support the account's authentication method"
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Unreachable, "no answer in time"
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return Unreachable, err.Error()
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, driverpkg.ErrInvalidConn) || errors.Is(err, driverpkg.ErrMalformPkt) ||
		errors.Is(err, driverpkg.ErrPktSync) {
		return Unreachable, "the connection was lost, or the program at this address is not a MySQL server: " + err.Error()
	}
	return Other, err.Error()
}

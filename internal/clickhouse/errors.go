// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"yunion.io/x/ocadm/internal/statement"
)

// Class is the class of an Error.
type Class string

const (
	// Unreachable means that no server answers, or not now.
	Unreachable Class = "Unreachable"
	// AccessDenied means that the server refuses the login of the account.
	AccessDenied Class = "AccessDenied"
	// NoPrivilege means that the account lacks a privilege.
	NoPrivilege Class = "NoPrivilege"
	// NotWritable means that the server keeps the account in a file, or has no storage for accounts created by SQL.
	NotWritable Class = "NotWritable"
	// NotUnderstood means that the server is too old for the statement.
	NotUnderstood Class = "NotUnderstood"
	Refused       Class = "Refused"
	Canceled      Class = "Canceled"
	Other         Class = "Other"
)

// Error is a failed operation on a server. It never holds a secret.
type Error struct {
	Class Class
	// Op is the failed operation, in the gerund: `creating database "glance"`.
	Op string
	// Server is host:port, User the account used.
	Server, User string
	// Code is the server's error number, 0 if the error is not from the server.
	Code int
	// Detail is the message of the server or the network, without secrets.
	Detail string

	err error
}

func (e *Error) Error() string {
	return e.Op + " on ClickHouse " + e.Server + " as " + quoteString(e.User) + ": " + e.Detail
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
func IsUnavailable(err error) bool { return ClassOf(err) == Unreachable }

// IsDenied reports whether the server refuses the administrator's login. Nothing works until the account is fixed.
func IsDenied(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Op == opConnect && e.Class == AccessDenied
}

// opConnect is the Op of an Error about the administrator's own login.
const opConnect = "connecting"

// codes maps ClickHouse's error codes; all others are Other.
var codes = map[proto.Error]Class{
	62:  NotUnderstood, // SYNTAX_ERROR
	192: AccessDenied,  // UNKNOWN_USER
	193: AccessDenied,  // WRONG_PASSWORD
	194: AccessDenied,  // REQUIRED_PASSWORD
	195: AccessDenied,  // IP_ADDRESS_NOT_ALLOWED
	516: AccessDenied,  // AUTHENTICATION_FAILED
	164: NoPrivilege,   // READONLY: set in the account's profile
	497: NoPrivilege,   // ACCESS_DENIED
	495: NotWritable,   // ACCESS_STORAGE_READONLY
	514: NotWritable,   // ACCESS_STORAGE_FOR_INSERTION_NOT_FOUND
	159: Unreachable,   // TIMEOUT_EXCEEDED
	202: Unreachable,   // TOO_MANY_SIMULTANEOUS_QUERIES
	203: Unreachable,   // NO_FREE_CONNECTION
	209: Unreachable,   // SOCKET_TIMEOUT
	210: Unreachable,   // NETWORK_ERROR
	225: Unreachable,   // NO_ZOOKEEPER
	236: Unreachable,   // ABORTED: the server is shutting down
	241: Unreachable,   // MEMORY_LIMIT_EXCEEDED
	242: Unreachable,   // TABLE_IS_READ_ONLY
	999: Unreachable,   // KEEPER_EXCEPTION
}

// codeExists is ACCESS_ENTITY_ALREADY_EXISTS.
const codeExists = 493

// remedies are appended to the server's message.
var remedies = map[Class]string{
	NoPrivilege: "; the account needs access_management, or SHOW USERS, CREATE USER, ALTER USER, DROP USER, and WITH GRANT OPTION the privileges that it grants",
	NotWritable: "; the server needs an access_control_path (or user_directories with local_directory), and no account of this name in users.xml",
}

// maxDetail limits how many characters of a server's message are repeated.
const maxDetail = 300

// newError classifies an error of the client.
func (c Config) newError(op string, err error, secrets ...string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Op: op, Server: c.Addr(), User: c.user()}
	if x, ok := errors.AsType[*ch.Exception](err); ok {
		e.Code, e.Class = int(x.Code), codes[x.Code]
		e.Class = cmp.Or(e.Class, Other)
		e.Detail = fmt.Sprintf("%s (%d)", message(x), e.Code) + remedies[e.Class]
		if e.Class == NotUnderstood { // the server's message quotes the statement
			e.Detail = fmt.Sprintf("the server rejects the syntax of the statement (%d); ClickHouse 20.5 or newer is required", e.Code)
		}
	} else {
		e.err = err
		e.Class, e.Detail = networkClass(err)
	}
	e.Detail = statement.Redact(e.Detail, append(secrets, c.Password, hash(c.Password))...)
	return e
}

// message returns the server's message in one line, without its prefix and hints at how to reset passwords.
func message(x *ch.Exception) string {
	s := strings.TrimSpace(strings.TrimPrefix(x.Message, x.Name+":"))
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > maxDetail {
		s = string(r[:maxDetail]) + "…"
	}
	return s
}

func networkClass(err error) (Class, string) {
	switch {
	case errors.Is(err, context.Canceled):
		return Canceled, "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return Unreachable, "no answer in time"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return Unreachable, op.Error()
	}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		return Unreachable, "no answer in time"
	}
	_, network := errors.AsType[net.Error](err)
	if network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, ch.ErrClosed) {
		return Unreachable, "the connection was lost"
	}
	return Unreachable, "the program at this address does not speak ClickHouse's native protocol without TLS (usually port 9000)"
}

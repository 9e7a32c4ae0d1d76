// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"yunion.io/x/ocadm/internal/lists"
)

// Classes of errors that do not come from a service; the service's own ("ForbiddenError", "WrongPassword") are used as they are.
const (
	ClassUnavailable = "Unavailable"
	ClassTLS         = "TLS"
	ClassCanceled    = "Canceled"
	ClassMalformed   = "MalformedAnswer"
	// ClassMismatch means that a record exists and cannot be changed into the wanted one.
	ClassMismatch = "Mismatch"
)

// Error is a failed call. It never holds a secret.
type Error struct {
	// Status is the HTTP status, 0 if there was no response.
	Status int
	// Class is the service's error class, or one of the constants above.
	Class string
	// Title is one sentence of the service's message.
	Title string
	// Op is the failed operation, in the gerund: `creating user "glance"`.
	Op string
	// URL is the URL that was called, without the query.
	URL string

	err error
}

func (e *Error) Error() string {
	s := e.Op
	if e.URL != "" {
		s += " at " + e.URL
	}
	if e.Status != 0 {
		s += fmt.Sprintf(": %d", e.Status)
	}
	if e.Class != "" {
		s += ": " + e.Class
	}
	if e.Title != "" {
		s += ": " + e.Title
	}
	return s
}

// Unwrap returns the error of the network or the context, if there is one.
func (e *Error) Unwrap() error { return e.err }

// IsForbidden reports whether the account lacks the permission. A fresh identity service refuses even its administrator for half a minute after the
// first policy was bound.
func IsForbidden(err error) bool { return isStatus(err, http.StatusForbidden) }

// IsUnauthorized reports whether the password is wrong.
func IsUnauthorized(err error) bool { return isStatus(err, http.StatusUnauthorized) }

// IsLoginRefused reports whether the service refuses the login of that user.
func IsLoginRefused(err error, user string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Op == opLogin(user) && e.Status >= 400 && e.Status < 500 && e.Class != ClassUnavailable
}

// IsNotFound reports whether the record does not exist; for a login, the user.
func IsNotFound(err error) bool { return isStatus(err, http.StatusNotFound) }

// IsConflict reports whether the record exists already.
func IsConflict(err error) bool { return isStatus(err, http.StatusConflict) }

// IsUnavailable reports whether the service did not answer or failed internally. A later attempt may succeed.
func IsUnavailable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Class == ClassUnavailable || e.Status >= http.StatusInternalServerError)
}

func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status && e.Class != ClassUnavailable
}

func opLogin(user string) string { return fmt.Sprintf("logging in as %q", user) }

// ofAccount are the parts of a message that show that a login is refused because of the account: it lacks a role or a password, or has expired. The identity
// service refuses every login with the same status and class while it cannot read its database.
var ofAccount = []string{"[auth]", "sql: no rows", "UserExpired"}

// ofLogin marks the error of a login as that of an unavailable service if the reason is not the account.
func ofLogin(err error) error {
	e, ok := errors.AsType[*Error](err)
	if ok && e.Status == http.StatusUnauthorized && e.Class == "UnauthorizedError" &&
		!slices.ContainsFunc(ofAccount, func(s string) bool { return strings.Contains(e.Title, s) }) {
		e.Class = ClassUnavailable
	}
	return err
}

const maxTitle = 300

// statusError parses the services' error body: {"error":{"code","class","details"}}, or the same without "error".
func statusError(r request, status int, body []byte, secrets []string) *Error {
	type details struct {
		Class   string          `json:"class"`
		Title   string          `json:"title"`
		Details json.RawMessage `json:"details"`
		Message string          `json:"message"`
	}
	var wrapped struct {
		Error *details `json:"error"`
		details
	}
	_ = json.Unmarshal(body, &wrapped)
	d := wrapped.details
	if wrapped.Error != nil {
		d = *wrapped.Error
	}
	var text string
	if json.Unmarshal(d.Details, &text) != nil {
		text = string(d.Details)
	}
	for _, s := range []string{d.Message, d.Title, http.StatusText(status)} {
		text = cmp.Or(text, s)
	}
	text = redact(strings.Join(strings.Fields(text), " "), secrets)
	if len(text) > maxTitle {
		text = strings.ToValidUTF8(text[:maxTitle], "") + "..."
	}
	return &Error{Status: status, Class: redact(cmp.Or(d.Class, d.Title), secrets), Title: text, Op: r.op, URL: r.url}
}

func transportError(r request, err error, secrets []string) *Error {
	e := &Error{Op: r.op, URL: r.url, err: err}
	if u, ok := errors.AsType[*url.Error](err); ok {
		// The text of a url.Error repeats the method and the URL.
		e.err = u.Err
	}
	e.Class = transportClass(err)
	e.Title = redact(e.err.Error(), secrets)
	return e
}

func transportClass(err error) string {
	if errors.Is(err, context.Canceled) {
		return ClassCanceled
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ClassTLS
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return ClassTLS
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return ClassUnavailable
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE} {
		if errors.Is(err, e) {
			return ClassUnavailable
		}
	}
	return ""
}

// redact removes secrets from a service's message, in every form in which it may quote a request: as they are, escaped as in JSON, with whitespace
// collapsed to one blank, and single lines of a multi-line key.
func redact(s string, secrets []string) string {
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		forms := []string{secret, strings.Join(strings.Fields(secret), " ")}
		if quoted, err := json.Marshal(secret); err == nil {
			forms = append(forms, string(quoted[1:len(quoted)-1]))
		}
		forms = append(forms, lists.Filter(strings.Split(secret, "\n"), func(line string) bool { return len(line) >= minLine })...)
		for _, form := range forms {
			s = strings.ReplaceAll(s, form, "***")
		}
	}
	return s
}

// minLine is the length from which a line of a secret is redacted by itself: the lines of a PEM key have 64 characters.
const minLine = 16

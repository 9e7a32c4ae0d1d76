// SPDX-License-Identifier: Apache-2.0

// Package finding describes what is wrong, or worth saying, about a machine, a database or a cloud, in a form that preflight,
// failure diagnosis, exit codes and JSON output share. It only describes: it neither looks nor acts.
package finding

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a finding means for the run that met it.
type Severity string

const (
	// Error stops the run before anything is changed.
	Error Severity = "error"
	// Warning is printed and the run goes on.
	Warning Severity = "warning"
)

// Finding is one thing a check or a failed step has to say.
type Finding struct {
	// Code is stable for ever and documented in docs/reference/findings.md: "OCA-6012".
	Code string `json:"code"`
	// Check is the CamelCase name that --ignore-preflight-errors takes: "MySQL". Empty for failures that cannot be ignored.
	Check    string   `json:"check,omitempty"`
	Severity Severity `json:"severity"`
	// What happened, one sentence without a final period.
	What string `json:"what"`
	// Cause is why, as far as it is known.
	Cause string `json:"cause,omitempty"`
	// Remedy is the exact next command, or statement to run, or flag to set.
	Remedy string `json:"remedy,omitempty"`
	// Evidence is what was seen: log lines, values. Never a secret.
	Evidence []string `json:"evidence,omitempty"`
	// Err is the underlying error; it is not printed again where What or Cause hold it.
	Err error `json:"-"`
}

// Error makes a single finding usable as an error.
func (f Finding) Error() string {
	s := f.What
	if f.Cause != "" {
		s += ": " + f.Cause
	}
	return s
}

// Unwrap gives errors.Is and errors.As the underlying error.
func (f Finding) Unwrap() error { return f.Err }

// ExitCode is derived from the code, see ExitCode.
func (f Finding) ExitCode() int { return ExitCode(f.Code) }

// List is every finding of one run, as an error when one of them is an Error.
type List []Finding

// Errors returns the findings that stop a run.
func (l List) Errors() List { return l.with(Error) }

// Warnings returns the findings that do not.
func (l List) Warnings() List { return l.with(Warning) }

func (l List) with(s Severity) List {
	var out List
	for _, f := range l {
		if f.Severity == s {
			out = append(out, f)
		}
	}
	return out
}

// Err returns the list as an error if it holds one that stops the run, else nil.
func (l List) Err() error {
	if e := l.Errors(); len(e) > 0 {
		return e
	}
	return nil
}

// Error joins the findings, one a line.
func (l List) Error() string {
	lines := make([]string, len(l))
	for i, f := range l {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Ignore turns the errors of the named checks into warnings. "all" names every check. Names are compared without case.
func (l List) Ignore(names []string) List {
	out := make(List, len(l))
	for i, f := range l {
		if f.Severity == Error && f.Check != "" && slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, "all") || strings.EqualFold(n, f.Check) }) {
			f.Severity = Warning
		}
		out[i] = f
	}
	return out
}

// Of returns the findings that err carries, or nil.
func Of(err error) List {
	if l, ok := errors.AsType[List](err); ok {
		return l
	}
	if f, ok := errors.AsType[Finding](err); ok {
		return List{f}
	}
	return nil
}

// New makes an error finding.
func New(code, what, cause, remedy string) Finding {
	return Finding{Code: code, Severity: Error, What: what, Cause: cause, Remedy: remedy}
}

// Warn makes a warning.
func Warn(code, what, cause, remedy string) Finding {
	return Finding{Code: code, Severity: Warning, What: what, Cause: cause, Remedy: remedy}
}

// With is f with what was seen.
func (f Finding) With(evidence ...string) Finding {
	f.Evidence = evidence
	return f
}

// Errorf makes an error finding whose cause is the formatted error.
func Errorf(code, what, remedy, format string, args ...any) Finding {
	err := fmt.Errorf(format, args...)
	return Finding{Code: code, Severity: Error, What: what, Cause: err.Error(), Remedy: remedy, Err: err}
}

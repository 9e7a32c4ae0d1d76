// SPDX-License-Identifier: Apache-2.0

// Package finding describes problems and remarks about a machine, a database or a cloud in a form shared by preflight checks, failure diagnosis, exit
// codes and JSON output. It only describes: it neither inspects nor acts.
package finding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// Severity is the effect of a finding on the run.
type Severity string

const (
	// Error stops the run before anything is changed.
	Error Severity = "error"
	// Warning is printed, and the run continues.
	Warning Severity = "warning"
)

// Finding is the result of a check or a failed step.
type Finding struct {
	// Code is stable and documented in docs/reference/findings.md: "OCA-6012".
	Code string `json:"code"`
	// Check is the CamelCase name for --ignore-preflight-errors: "MySQL". Empty for failures that cannot be ignored.
	Check    string   `json:"check,omitempty"`
	Severity Severity `json:"severity"`
	// What is what happened, in one sentence without a final period.
	What string `json:"what"`
	// Cause is why, as far as it is known.
	Cause string `json:"cause,omitempty"`
	// Remedy is the exact command or statement to run next, or the flag to set.
	Remedy string `json:"remedy,omitempty"`
	// Evidence is what was observed: log lines, values. It never contains secrets.
	Evidence []string `json:"evidence,omitempty"`
	// Err is the underlying error; it is not printed again if What or Cause contain it.
	Err error `json:"-"`
}

// Error lets a single finding be used as an error.
func (f Finding) Error() string {
	s := f.What
	if f.Cause != "" {
		s += ": " + f.Cause
	}
	return s
}

// Unwrap returns the underlying error for errors.Is and errors.As.
func (f Finding) Unwrap() error { return f.Err }

// ExitCode returns the exit code derived from the code, see ExitCode.
func (f Finding) ExitCode() int { return ExitCode(f.Code) }

// List holds all findings of a run.
type List []Finding

// Errors returns the findings that stop a run.
func (l List) Errors() List { return l.with(Error) }

// Warnings returns the findings that do not stop a run.
func (l List) Warnings() List { return l.with(Warning) }

func (l List) with(s Severity) List {
	return lists.Filter(l, func(f Finding) bool { return f.Severity == s })
}

// Err returns the list as an error if it contains one that stops the run, otherwise nil.
func (l List) Err() error {
	if e := l.Errors(); len(e) > 0 {
		return e
	}
	return nil
}

// Error returns the findings, one per line.
func (l List) Error() string {
	return strings.Join(lists.Map(l, Finding.Error), "\n")
}

// Ignore turns the errors of the named checks into warnings. "all" means every check. Names are case-insensitive.
func (l List) Ignore(names []string) List {
	out := make(List, len(l))
	for i, f := range l {
		if f.Severity == Error && f.Check != "" && Ignored(f.Check, names) {
			f.Severity = Warning
		}
		out[i] = f
	}
	return out
}

// Ignored reports whether the names of ignored checks include a check.
func Ignored(check string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, "all") || strings.EqualFold(n, check) })
}

// Of returns the findings in err, or nil.
func Of(err error) List {
	if l, ok := errors.AsType[List](err); ok {
		return l
	}
	if f, ok := errors.AsType[Finding](err); ok {
		return List{f}
	}
	return nil
}

// New returns an error finding.
func New(code, what, cause, remedy string) Finding {
	return Finding{Code: code, Severity: Error, What: what, Cause: cause, Remedy: remedy}
}

// Warn returns a warning.
func Warn(code, what, cause, remedy string) Finding {
	return Finding{Code: code, Severity: Warning, What: what, Cause: cause, Remedy: remedy}
}

// With returns f with additional evidence.
func (f Finding) With(evidence ...string) Finding {
	f.Evidence = evidence
	return f
}

// Wrap returns f with an underlying error, which Unwrap returns.
func (f Finding) Wrap(err error) Finding {
	f.Err = err
	return f
}

// Failed returns an error finding whose cause is err, but err itself if it is nil, or if the user interrupted the work: that is no failure.
func Failed(ctx context.Context, err error, code, what, remedy string) error {
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	return Errorf(code, what, remedy, "%w", err)
}

// Errorf returns an error finding whose cause is the formatted error.
func Errorf(code, what, remedy, format string, args ...any) Finding {
	err := fmt.Errorf(format, args...)
	return New(code, what, err.Error(), remedy).Wrap(err)
}

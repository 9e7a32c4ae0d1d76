// SPDX-License-Identifier: Apache-2.0

// Package wait waits, and can always say for what and why it is not there yet. What can be watched is waited for in internal/kube;
// Until is for the rest.
package wait

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Earliest of the times that are not zero; zero if all are.
func Earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Error is a wait that did not end well. Why is the last that was seen.
type Error struct {
	What, Why string
	Err       error
}

func (e *Error) Error() string {
	cause := e.Err
	s := "waiting for " + e.What
	if e.Why != "" {
		s += ": " + e.Why
	}
	switch {
	case expired(cause):
		return s + " (" + cause.Error() + ")"
	case errors.Is(cause, context.DeadlineExceeded):
		return s + " (time is up)"
	case errors.Is(cause, context.Canceled):
		return s + " (interrupted)"
	}
	return fmt.Sprintf("%s: %v", s, cause)
}

func (e *Error) Unwrap() error { return e.Err }

// expired reports whether the cause of a context says how long the wait was allowed to take.
func expired(cause error) bool {
	return errors.Is(cause, context.DeadlineExceeded) && cause != context.DeadlineExceeded //nolint:errorlint // a cause that wraps it says more
}

// Why returns why the wait in err had not ended, and how long it took if its context says so.
func Why(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return ""
	}
	if expired(e.Err) {
		return strings.TrimPrefix(e.Why+" ("+e.Err.Error()+")", " ")
	}
	return e.Why
}

// Wait is something to wait for. Run returns when it is there, and calls report with each new reason why it is not.
type Wait struct {
	What string
	Run  func(ctx context.Context, report func(why string)) error
}

// All waits for everything at once and returns every error. report gets, one call at a time, what is waited for and why;
// an empty why means that it is there.
func All(ctx context.Context, report func(what, why string), waits ...Wait) error {
	var mu sync.Mutex
	errs := make([]error, len(waits))
	var g errgroup.Group
	for i, w := range waits {
		g.Go(func() error {
			say := func(why string) {
				mu.Lock()
				defer mu.Unlock()
				report(w.What, why)
			}
			errs[i] = w.Run(ctx, say)
			if errs[i] == nil {
				say("")
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return nil; their errors are in errs
	return errors.Join(errs...)
}

// Until asks check, every interval, until it is done. An error of check is a reason to go on waiting; only the end of ctx ends the wait.
func Until(ctx context.Context, what string, interval time.Duration, check func(context.Context) (done bool, why string, err error),
	report func(why string)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last := ""
	for {
		done, why, err := check(ctx)
		if done && err == nil {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			why = err.Error()
		}
		if why != last && why != "" {
			last = why
			report(why)
		}
		select {
		case <-ctx.Done():
			return &Error{What: what, Why: last, Err: context.Cause(ctx)}
		case <-tick.C:
		}
	}
}

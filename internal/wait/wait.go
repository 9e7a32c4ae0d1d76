// SPDX-License-Identifier: Apache-2.0

// Package wait waits for conditions and always knows what it is waiting for, and why. internal/kube waits for what can be watched; Until is for the
// rest.
package wait

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/lists"
)

// Earliest returns the earliest of the times that are not zero; zero if all are.
func Earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Error is the error of a wait that ended early. Why is the last reason.
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

// Expired is the cause with which a context ends when a time limit is over, in words. It is a context.DeadlineExceeded.
type Expired string

func (e Expired) Error() string { return string(e) }

func (Expired) Is(target error) bool { return target == context.DeadlineExceeded }

// expired reports whether the cause of a context includes how long the wait was allowed to take.
func expired(cause error) bool {
	return errors.Is(cause, context.DeadlineExceeded) && cause != context.DeadlineExceeded //nolint:errorlint // a wrapping cause says more
}

// Why returns the last reason of the wait in err, and how long it took if its context says so; without a reason, the message of err.
func Why(err error) string {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return err.Error()
	case expired(e.Err):
		return strings.TrimPrefix(e.Why+" ("+e.Err.Error()+")", " ")
	case e.Why == "":
		return e.Error()
	}
	return e.Why
}

// Wait is a condition to wait for. Run returns once it holds, and calls report with each new reason why it does not.
type Wait struct {
	What string
	Run  func(ctx context.Context, report func(why string)) error
}

// All waits for all conditions concurrently and returns all errors. report, which is not called concurrently, receives what is waited for and why; an
// empty why means that the condition holds.
func All(ctx context.Context, report func(what, why string), waits ...Wait) error {
	var mu sync.Mutex
	return errors.Join(lists.Parallel(waits, len(waits), func(_ int, w Wait) error {
		say := func(why string) {
			mu.Lock()
			defer mu.Unlock()
			report(w.What, why)
		}
		err := w.Run(ctx, say)
		if err == nil {
			say("")
		}
		return err
	})...)
}

// Sleep pauses. If ctx ends before d is over, it returns the cause at once.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Until calls check at an interval until it is done. An error of check is a reason to keep waiting; only the end of ctx ends the wait.
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

// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestUntilReportsEachReasonOnce(t *testing.T) {
	answers := []string{"no disk", "no disk", "no network", ""}
	var reasons []string
	n := 0
	err := Until(t.Context(), "x", time.Nanosecond, func(context.Context) (bool, string, error) {
		n++
		why := answers[n-1]
		return why == "", why, nil
	}, func(why string) { reasons = append(reasons, why) })
	if err != nil || !slices.Equal(reasons, []string{"no disk", "no network"}) {
		t.Errorf("reasons %q, %v", reasons, err)
	}
}

func TestUntilEndsWithTheLastReason(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Until(ctx, "the moon", time.Nanosecond, func(context.Context) (bool, string, error) {
		cancel(context.DeadlineExceeded)
		return false, "clouds", nil
	}, func(string) {})
	if !errors.Is(err, context.DeadlineExceeded) || Why(err) != "clouds" {
		t.Fatal(err)
	}
	if got, want := err.Error(), "waiting for the moon: clouds (time is up)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhyIsNeverEmpty(t *testing.T) {
	timed := fmt.Errorf("after 5m: %w", context.DeadlineExceeded)
	for want, err := range map[string]error{
		"forbidden":                             errors.New("forbidden"),
		"no disk":                               fmt.Errorf("disk: %w", &Error{What: "disk", Why: "no disk", Err: context.DeadlineExceeded}),
		"waiting for disk (time is up)":         &Error{What: "disk", Err: context.DeadlineExceeded},
		"(after 5m: context deadline exceeded)": &Error{What: "disk", Err: timed},
		"no disk (after 5m: context deadline exceeded)": &Error{What: "disk", Why: "no disk", Err: timed},
	} {
		if got := Why(err); got != want {
			t.Errorf("Why(%v) = %q, want %q", err, got, want)
		}
	}
}

func TestAllReturnsEveryError(t *testing.T) {
	bad := errors.New("bad")
	var done []string
	err := All(t.Context(), func(what, why string) {
		if why == "" {
			done = append(done, what)
		}
	},
		Wait{What: "a", Run: func(context.Context, func(string)) error { return nil }},
		Wait{What: "b", Run: func(context.Context, func(string)) error { return bad }},
	)
	if !errors.Is(err, bad) || !slices.Equal(done, []string{"a"}) {
		t.Errorf("done %q, %v", done, err)
	}
}

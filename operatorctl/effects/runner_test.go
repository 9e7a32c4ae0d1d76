// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/identity"
)

// stage runs passes over effects with its own clock.
type stage struct {
	pass  Runner
	clock time.Time
}

func newStage(recorded map[string]string, available ...string) *stage {
	s := &stage{clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	has := func(n string) bool {
		for _, a := range available {
			if a == n {
				return true
			}
		}
		return false
	}
	s.pass = Runner{Memory: NewMemory(), Recorded: recorded, Available: has, Serving: func(string) bool { return false }, Now: func() time.Time { return s.clock }}
	return s
}

func counted(e Effect, n *int, err error) Effect {
	e.Do = func(context.Context, Clients) (bool, error) {
		*n++
		return err == nil, err
	}
	return e
}

func TestRecordedEffectIsNotPerformed(t *testing.T) {
	n := 0
	s := newStage(map[string]string{"a": "1"})
	out := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, nil)})
	if n != 0 || out[0].State != Done {
		t.Fatalf("performed %d times, state %s", n, out[0].State)
	}
	out = s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "2"}, &n, nil)})
	if n != 1 || out[0].State != Done || !out[0].Changed {
		t.Fatalf("after a change: performed %d times, %+v", n, out[0])
	}
	s.pass.Audit = true
	s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, nil)})
	if n != 2 {
		t.Fatal("the audit did not perform a recorded effect")
	}
}

func TestEffectWaitsForDependencies(t *testing.T) {
	n := 0
	e := counted(Effect{Key: "a", Hash: "1", Component: "region", Needs: []string{"keystone"}, Follows: []string{"first"}}, &n, nil)
	out := newStage(nil).pass.Run(t.Context(), []Effect{e})
	if n != 0 || out[0].State != Pending || len(out[0].For) != 2 {
		t.Fatalf("performed %d times, %+v", n, out[0])
	}
	out = newStage(map[string]string{"first": "x"}, "keystone").pass.Run(t.Context(), []Effect{e})
	if n != 1 || out[0].State != Done {
		t.Fatalf("performed %d times, %+v", n, out[0])
	}
}

func TestOwnEffectsNeedOnlyServing(t *testing.T) {
	n := 0
	s := newStage(nil)
	s.pass.Serving = func(c string) bool { return c == "keystone" }
	s.pass.Run(t.Context(), []Effect{
		counted(Effect{Key: "a", Hash: "1", Component: "keystone", Needs: []string{"keystone"}}, &n, nil),
		counted(Effect{Key: "b", Hash: "1", Component: "region", Needs: []string{"keystone"}}, &n, nil),
	})
	if n != 1 {
		t.Fatalf("performed %d effects, want keystone's own only", n)
	}
}

func TestFailureBacksOffUntilAChange(t *testing.T) {
	n := 0
	s := newStage(nil)
	bad := errors.New("refused")
	run := func(hash string) Outcome {
		return s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: hash}, &n, bad)})[0]
	}
	first := run("1")
	if first.State != Failed || !errors.Is(first.Err, bad) || first.Retry.Sub(s.clock) != firstRetry {
		t.Fatalf("first failure: %+v", first)
	}
	if again := run("1"); n != 1 || again.State != Failed {
		t.Fatalf("tried %d times before the retry is due, %+v", n, again)
	}
	s.clock = first.Retry
	if second := run("1"); n != 2 || second.Retry.Sub(s.clock) != 2*firstRetry {
		t.Fatalf("second failure: tried %d times, %+v", n, second)
	}
	if run("2"); n != 3 {
		t.Fatal("a changed effect was not tried at once")
	}
}

func TestWaitingIsNoFailure(t *testing.T) {
	n := 0
	s := newStage(nil)
	out := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, Waiting{For: "the policy", Retry: 3 * time.Second})})
	if out[0].State != Pending || out[0].For[0] != "the policy" || out[0].Retry.Sub(s.clock) != 3*time.Second {
		t.Fatalf("%+v", out[0])
	}
}

func TestUnreachableTargetIsTriedOnce(t *testing.T) {
	s := newStage(nil)
	down := errors.New("connection refused")
	s.pass.Clients.Down = func(err error) bool { return errors.Is(err, down) }
	var asked atomic.Int32
	var list []Effect
	for i := range 100 {
		list = append(list, Effect{Key: strconv.Itoa(i), Hash: "1", Target: MySQL, Do: func(context.Context, Clients) (bool, error) {
			asked.Add(1)
			return false, down
		}})
	}
	for _, o := range s.pass.Run(t.Context(), list) {
		if o.State != Pending || o.Err == nil {
			t.Fatalf("%+v", o) // effects that waited for the probe are as patient as the probe
		}
	}
	if n := asked.Load(); n > parallel {
		t.Errorf("a target that is down was asked %d times, want at most the %d under way at once", n, parallel)
	}
}

func TestUnreachableTargetFailsAfterWait(t *testing.T) {
	s := newStage(nil)
	down := errors.New("connection refused")
	s.pass.Clients.Down = func(err error) bool { return errors.Is(err, down) }
	n := 0
	var o Outcome
	for range patience {
		if o = s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, down)})[0]; o.State != Pending {
			t.Fatalf("try %d: %+v", n, o)
		}
		s.clock = o.Retry
	}
	if o = s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, down)})[0]; o.State != Failed || !errors.Is(o.Err, down) {
		t.Fatalf("try %d: %+v", n, o)
	}
}

// An effect that the audit could not verify stays unverified, and is retried until it is done.
func TestFailedAuditIsNotForgotten(t *testing.T) {
	n := 0
	s := newStage(map[string]string{"a": "1"})
	bad := errors.New("access denied")
	s.pass.Audit = true
	first := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, bad)})[0]
	if n != 1 || first.State != Failed {
		t.Fatalf("audit: performed %d times, %+v", n, first)
	}
	s.pass.Audit = false
	if o := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, bad)})[0]; n != 1 || o.State != Failed {
		t.Fatalf("before the retry is due: performed %d times, %+v", n, o)
	}
	s.clock = first.Retry
	if o := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, nil)})[0]; n != 2 || o.State != Done {
		t.Fatalf("when the retry is due: performed %d times, %+v", n, o)
	}
	if o := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, nil)})[0]; n != 2 || o.State != Done {
		t.Fatalf("afterwards: performed %d times, %+v", n, o)
	}
}

// A grant that never becomes visible must not be checked twice a second forever.
func TestRetriesSlowDown(t *testing.T) {
	s := newStage(nil)
	n := 0
	start := s.clock
	for s.clock.Sub(start) < time.Hour {
		o := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1"}, &n, Waiting{For: "the policy", Retry: grantVisible})})[0]
		if o.State != Pending {
			t.Fatalf("%+v", o)
		}
		s.clock = o.Retry
	}
	if n > 600 {
		t.Errorf("tried %d times in an hour", n)
	}
	if at := s.pass.Memory.tries["a"].next.Sub(s.clock); at > lastRetry {
		t.Errorf("the next try comes after %s", at)
	}
}

// A rejected password comes with a remedy; other rejections do not.
func TestRejectedPasswordHasARemedy(t *testing.T) {
	for status, want := range map[int]bool{401: true, 404: false} {
		s := newStage(nil)
		s.pass.Clients = Clients{Denied: func(error) bool { return true }, Advice: "put it there"}
		refused := &identity.Error{Status: status, Op: "logging in"}
		n := 0
		out := s.pass.Run(t.Context(), []Effect{counted(Effect{Key: "a", Hash: "1", Target: Identity}, &n, refused)})
		if got := strings.Contains(out[0].Err.Error(), "put it there"); got != want || !errors.Is(out[0].Err, refused) {
			t.Errorf("%d: %v", status, out[0].Err)
		}
	}
}

// An effect with a longer time limit may use it; the others may not.
func TestEffectsHaveTheirTimeouts(t *testing.T) {
	var left [2]time.Duration
	timed := func(i int, e Effect) Effect {
		e.Do = func(ctx context.Context, _ Clients) (bool, error) {
			end, _ := ctx.Deadline()
			left[i] = time.Until(end)
			return false, nil
		}
		return e
	}
	newStage(nil).pass.Run(t.Context(), []Effect{timed(0, Effect{Key: "a", Hash: "1"}), timed(1, Effect{Key: "b", Hash: "1", Within: time.Hour})})
	if left[0] > timeout || left[1] < time.Hour-time.Minute {
		t.Errorf("%s and %s", left[0], left[1])
	}
}

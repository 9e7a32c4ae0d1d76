// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An effect that takes longer than Run waits continues and wakes the next Run, which reports it without repeating it.
func TestSlowEffectIsReportedByTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done, woken atomic.Int32
		s := newStage(nil)
		s.pass.WaitLimit, s.pass.Wake = time.Second, func() { woken.Add(1) }
		slow := []Effect{{Key: "a", Hash: "1", Target: MySQL, Do: func(context.Context, Clients) (bool, error) {
			time.Sleep(5 * time.Second)
			done.Add(1)
			return true, nil
		}}}
		for range 2 {
			if o := s.pass.Run(t.Context(), slow)[0]; o.State != Pending || !o.Retry.Equal(s.clock.Add(timeout)) || done.Load() != 0 {
				t.Errorf("under way: %+v", o)
			}
		}
		s.pass.Recorded = map[string]string{"a": "1"}
		if o := s.pass.Run(t.Context(), slow)[0]; o.State != Done || o.Changed || !o.Retry.IsZero() {
			t.Errorf("an audit that is under way: %+v", o)
		}
		if !s.pass.Memory.Busy() {
			t.Error("an effect is under way, and the memory is not busy")
		}
		time.Sleep(10 * time.Second)
		if woken.Load() != 1 || s.pass.Memory.Busy() {
			t.Errorf("woken %d times, busy %v", woken.Load(), s.pass.Memory.Busy())
		}
		if o := s.pass.Run(t.Context(), slow)[0]; o.State != Done || !o.Changed || done.Load() != 1 {
			t.Errorf("ended: %+v, done %d times", o, done.Load())
		}
	})
}

// The result of a slow effect with an older hash does not count.
func TestChangedSlowEffectIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Int32
		s := newStage(nil)
		s.pass.WaitLimit = time.Second
		slow := func(hash string) []Effect {
			return []Effect{{Key: "a", Hash: hash, Do: func(context.Context, Clients) (bool, error) {
				time.Sleep(2 * time.Second)
				done.Add(1)
				return true, nil
			}}}
		}
		s.pass.Run(t.Context(), slow("1"))
		if o := s.pass.Run(t.Context(), slow("2"))[0]; o.State != Pending {
			t.Errorf("while the older one runs: %+v", o)
		}
		time.Sleep(5 * time.Second)
		s.pass.WaitLimit = 0
		if o := s.pass.Run(t.Context(), slow("2"))[0]; o.State != Done || !o.Changed || done.Load() != 2 {
			t.Errorf("done %d times: %+v", done.Load(), o)
		}
	})
}

// Only one effect tries an unhealthy target. The others wait for its result, and continue once it gets an answer.
func TestUnhealthyTargetIsProbedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		s := newStage(nil)
		s.pass.Clients.Down = func(err error) bool { return errors.Is(err, down) }
		var asked atomic.Int32
		answer := down
		list := make([]Effect, 20)
		for i := range list {
			list[i] = Effect{Key: string(rune('a' + i)), Hash: "1", Target: MySQL, Do: func(context.Context, Clients) (bool, error) {
				asked.Add(1)
				time.Sleep(3 * time.Second)
				return true, answer
			}}
		}
		s.pass.Run(t.Context(), list[:1])
		s.clock, s.pass.WaitLimit = s.clock.Add(time.Minute), time.Second
		asked.Store(0)
		for range 2 {
			for _, o := range s.pass.Run(t.Context(), list) {
				if o.State != Pending {
					t.Errorf("%+v", o)
				}
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("an unhealthy target was asked %d times at once", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		answer, s.pass.WaitLimit, s.clock = nil, 0, s.clock.Add(time.Minute)
		for _, o := range s.pass.Run(t.Context(), list) {
			if o.State != Done {
				t.Errorf("%+v", o)
			}
		}
	})
}

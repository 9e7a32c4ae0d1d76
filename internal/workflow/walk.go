// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

type walker[S any] struct {
	r     Runner[S]
	f     *flattening[S]
	modes []mode
	s     S
	o     Options
	id    string // this run's identity in the journal
	index []int  // number of each selected step, from 1
	count int

	results []StepResult // one writer per element, read after it has ended

	mu sync.Mutex // serialises the sink

	journal sync.Mutex // guards the fields below
	began   bool       // a phase that may change something has started
	held    []Entry    // the journal lines until then
}

func newWalk[S any](r Runner[S], f *flattening[S], modes []mode, s S, o Options) *walker[S] {
	w := &walker[S]{r: r, f: f, modes: modes, s: s, o: o, id: newRunID(), index: make([]int, len(f.steps)), results: make([]StepResult, len(f.steps))}
	for i, st := range f.steps {
		w.results[i] = StepResult{Name: st.name, State: Pending}
		if modes[i] != absent {
			w.count++
			w.index[i] = w.count
		}
	}
	return w
}

func (w *walker[S]) selected() []StepResult {
	var out []StepResult
	for i, r := range w.results {
		if w.modes[i] != absent {
			out = append(out, r)
		}
	}
	return out
}

func (w *walker[S]) emit(e Event) {
	if w.r.Sink == nil {
		return
	}
	e.Time, e.Plan = time.Now(), w.r.Plan
	w.mu.Lock()
	defer w.mu.Unlock()
	w.r.Sink.Event(e)
}

func (w *walker[S]) emitAt(i int, e Event) {
	e.Phase, e.Index, e.Count = w.f.steps[i].name, w.index[i], w.count
	w.emit(e)
}

func (w *walker[S]) record(ctx context.Context, e Entry) error {
	if w.o.DryRun || w.r.Journal == nil {
		return nil
	}
	e.Time, e.Run, e.Plan = time.Now().UTC(), w.id, w.r.Plan
	w.journal.Lock()
	defer w.journal.Unlock()
	w.began = w.began || e.Phase != "" && !w.readOnly(e.Phase) || e.Event == string(RunDone)
	w.held = append(w.held, e)
	if !w.began {
		return nil
	}
	for len(w.held) > 0 {
		if err := w.r.Journal.Append(ctx, w.held[0]); err != nil {
			return err
		}
		w.held = w.held[1:]
	}
	return nil
}

func (w *walker[S]) readOnly(phase string) bool {
	return slices.ContainsFunc(w.f.steps, func(s step[S]) bool { return s.name == phase && s.phase.ReadOnly })
}

func (w *walker[S]) reporter(i int) *reporter {
	return &reporter{emit: func(e Event) { w.emitAt(i, e) }}
}

func (w *walker[S]) skip(i int, reason string) {
	w.results[i].State, w.results[i].Reason = Skipped, reason
	w.emitAt(i, Event{Type: PhaseSkipped, Message: reason})
}

func (w *walker[S]) step(ctx context.Context, i int) {
	res := &w.results[i]
	res.Start = time.Now()
	rep := w.reporter(i)
	defer func() {
		if p := recover(); p != nil {
			res.Err = panicked(p)
			w.failed(ctx, i, rep)
		}
	}()
	phase := w.f.steps[i].phase
	for _, skip := range w.f.steps[i].skips {
		if reason := skip(w.s); reason != "" {
			w.skip(i, reason)
			return
		}
	}
	w.emitAt(i, Event{Type: PhaseStarted, Message: phase.Short})
	if w.o.DryRun {
		res.Err = w.plan(ctx, i, rep)
	} else {
		res.Err = w.do(ctx, i, rep)
	}
	res.Duration = time.Since(res.Start)
	if res.Err != nil {
		w.failed(ctx, i, rep)
	}
}

// do checks, runs and verifies a step.
func (w *walker[S]) do(ctx context.Context, i int, rep *reporter) error {
	s, res := w.f.steps[i], &w.results[i]
	done, err := check(ctx, s, w.s)
	if err != nil {
		return err
	}
	if done {
		res.State, res.Duration = Unchanged, time.Since(res.Start)
		w.emitAt(i, Event{Type: PhaseDone, Unchanged: true, Duration: res.Duration.Seconds()})
		return w.record(ctx, Entry{Phase: s.name, Event: string(PhaseDone), Unchanged: true, Duration: res.Duration.Seconds()})
	}
	if err := w.record(ctx, Entry{Phase: s.name, Event: string(PhaseStarted)}); err != nil {
		return err
	}
	err = attempt(ctx, s.phase, w.s, rep)
	res.Changes = rep.changes()
	if err != nil {
		return err
	}
	res.State, res.Duration = Done, time.Since(res.Start)
	w.emitAt(i, Event{Type: PhaseDone, Duration: res.Duration.Seconds()})
	return w.record(ctx, Entry{Phase: s.name, Event: string(PhaseDone), Changes: res.Changes, Duration: res.Duration.Seconds()})
}

// attempt runs and verifies a phase within its time limits.
func attempt[S any](ctx context.Context, phase Phase[S], s S, rep *reporter) error {
	limited, p, cancel := bounded(ctx, phase.Timeout, phase.Patience)
	rep.patience = p
	var repeating sync.WaitGroup
	repeating.Go(func() { rep.repeat(limited) })
	defer repeating.Wait()
	defer cancel()
	err := phase.Run(limited, s, rep)
	if err == nil && phase.Verify != nil {
		err = phase.Verify(limited, s)
	}
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return late(err, context.Cause(limited), rep.waiting())
	}
	return err
}

// plan is the dry run of a step: it reads and reports. It tolerates what cannot be read because an earlier phase would make it, but not a finding.
func (w *walker[S]) plan(ctx context.Context, i int, rep *reporter) error {
	s, res := w.f.steps[i], &w.results[i]
	done, err := check(ctx, s, w.s)
	if len(finding.Of(err)) > 0 || ctx.Err() != nil {
		return err
	}
	if err != nil {
		rep.Info("cannot be determined yet: %v", err)
	}
	if done {
		res.State = Unchanged
		w.emitAt(i, Event{Type: PhaseDone, Unchanged: true})
		return nil
	}
	lines := []string{s.phase.Short}
	if s.phase.Plan != nil {
		timeout := checkTimeout
		if s.phase.ReadOnly { // allow it as long as in a real run
			timeout = max(timeout, s.phase.Timeout)
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		planned, err := s.phase.Plan(ctx, w.s)
		if len(finding.Of(err)) > 0 {
			return err
		}
		if err != nil {
			rep.Info("cannot be determined yet: %v", err)
		} else {
			lines = planned
		}
	}
	if res.State, res.Changes = Planned, lines; s.phase.ReadOnly && s.phase.Plan != nil {
		res.State = Done // a dry run reads, too
	}
	w.emitAt(i, Event{Type: PhasePlanned, Changes: lines})
	return nil
}

func check[S any](ctx context.Context, s step[S], state S) (bool, error) {
	if s.phase.Check == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return s.phase.Check(ctx, state)
}

func (w *walker[S]) failed(ctx context.Context, i int, rep *reporter) {
	res := &w.results[i]
	res.State, res.Duration, res.Changes = Failed, time.Since(res.Start), rep.changes()
	if errors.Is(context.Cause(ctx), context.Canceled) && len(finding.Of(res.Err)) == 0 {
		res.State = Stopped
		res.Err = context.Cause(ctx)
	}
	e := Event{Type: PhaseFailed, Message: res.Err.Error(), Duration: res.Duration.Seconds()}
	if l := finding.Of(res.Err); len(l) > 0 {
		e.Findings = l
	}
	w.emitAt(i, e)
	if err := w.record(ctx, Entry{Phase: w.f.steps[i].name, Event: string(PhaseFailed), Error: res.Err.Error(), Changes: res.Changes,
		Duration: res.Duration.Seconds()}); err != nil {
		res.Err = errors.Join(res.Err, err)
	}
}

// late adds to an error that the phase ran out of time, and what it was waiting for.
func late(err, cause error, waiting string) error {
	if len(finding.Of(err)) > 0 {
		return err
	}
	if waiting != "" {
		waiting = ", still waiting for " + waiting
	}
	if errors.Is(err, cause) {
		return fmt.Errorf("%w%s", cause, waiting)
	}
	return fmt.Errorf("%w%s: %w", cause, waiting, err)
}

func panicked(p any) error {
	return fmt.Errorf("panic: %v\n%s", p, debug.Stack())
}

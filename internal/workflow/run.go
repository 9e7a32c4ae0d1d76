// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the outcome of a phase.
type State string

// The states. A Result omits phases that were not selected.
const (
	Pending   State = "pending" // never started because an earlier one failed
	Skipped   State = "skipped"
	Unchanged State = "unchanged"
	Done      State = "done"
	Planned   State = "planned"
	Failed    State = "failed"
	Stopped   State = "stopped" // ended because another phase failed or the run was interrupted
	Undone    State = "undone"
)

// StepResult is the outcome of one phase.
type StepResult struct {
	Name     string        `json:"name"`
	State    State         `json:"state"`
	Reason   string        `json:"reason,omitempty"`
	Changes  []string      `json:"changes,omitempty"`
	Start    time.Time     `json:"start,omitzero"`
	Duration time.Duration `json:"duration"`
	Err      error         `json:"-"`
}

// Result is the outcome of a run.
type Result struct {
	Plan     string        `json:"plan"`
	Steps    []StepResult  `json:"steps"`
	Duration time.Duration `json:"duration"`
}

// OnFailure is what a run does when a phase fails.
type OnFailure string

// Keep leaves everything for the next run to continue from. Rollback undoes what this run and the interrupted one before it did.
const (
	Keep     OnFailure = "keep"
	Rollback OnFailure = "rollback"
)

// Options holds the settings of one run.
type Options struct {
	DryRun bool
	// Skip and Only name phases; a parent's name covers its children.
	Skip, Only []string
	OnFailure  OnFailure
	// Inputs holds the settings of the run without secrets, for the journal.
	Inputs map[string]string
	// Stop, when done, starts no more phases but lets the running ones finish; nil is never done. When Run's own context ends, the running phases end
	// too.
	Stop context.Context
	// Before lists the phases that an interrupted run did; a rollback undoes them too.
	Before []string
	// UndoAll undoes the whole plan, instead of the Undo of each phase, if a phase with an Undo ran.
	UndoAll func(context.Context) error
}

// Runner runs a plan. Journal and Sink may be nil: then nothing is journaled or reported.
type Runner[S any] struct {
	Plan    string
	Phases  []Phase[S]
	Sink    Sink
	Journal Journal
}

// PhaseError reports a failed phase.
type PhaseError struct {
	Plan, Phase string
	Err         error
}

func (e *PhaseError) Error() string { return fmt.Sprintf("phase %s: %v", e.Phase, e.Err) }

func (e *PhaseError) Unwrap() error { return e.Err }

// ErrStopped is the reason why a phase ended that ran concurrently with a failed one.
var ErrStopped = errors.New("another phase failed")

const (
	// checkTimeout bounds Check and Plan, which only read.
	checkTimeout = time.Minute
	// undoTimeout bounds a rollback, which continues after the run's context has ended.
	undoTimeout = 10 * time.Minute
)

// Run runs the plan on s. A phase starts as soon as those named in its After have ended. A failed phase stops the rest.
func (r Runner[S]) Run(ctx context.Context, s S, o Options) (Result, error) {
	f, err := flatten(r.Phases)
	if err != nil {
		return Result{}, fmt.Errorf("checking the plan %s: %w", r.Plan, err)
	}
	modes, err := f.choose(r.Plan, o.Skip, o.Only)
	if err != nil {
		return Result{}, err
	}
	w := newWalk(r, f, modes, s, o)
	if err := w.record(ctx, Entry{Event: string(RunStarted), Inputs: o.Inputs, Part: len(o.Only) > 0}); err != nil {
		return Result{}, err
	}
	w.emit(Event{Type: RunStarted, Count: w.count})
	start := time.Now()
	err = w.run(ctx)
	if err != nil && o.OnFailure == Rollback && !o.DryRun {
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		if uerr := w.rollback(undoing); uerr != nil {
			err = errors.Join(err, fmt.Errorf("rolling back: %w", uerr))
		}
		cancel()
	}
	res := Result{Plan: r.Plan, Steps: w.selected(), Duration: time.Since(start)}
	end := Event{Type: RunDone, Duration: res.Duration.Seconds()}
	if err != nil {
		end.Type, end.Message = RunFailed, err.Error()
	}
	w.emit(end)
	err = errors.Join(err, w.record(ctx, Entry{Event: string(end.Type), Error: end.Message, Duration: res.Duration.Seconds()}))
	return res, unjoined(err)
}

// unjoined unwraps a joined error that holds only one.
func unjoined(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok && len(j.Unwrap()) == 1 {
		return j.Unwrap()[0]
	}
	return err
}

// run starts the steps that are ready and waits for running ones, until all have ended or one has failed.
func (w *walker[S]) run(parent context.Context) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	ended := make(chan int)
	started, over := make([]bool, len(w.f.steps)), make([]bool, len(w.f.steps))
	running, first := 0, error(nil)
	stopping := w.stopping()
	for {
		if (first == nil || w.o.DryRun) && ctx.Err() == nil && !w.stopped() {
			running += w.launch(ctx, started, over, ended)
		}
		if running == 0 {
			break
		}
		var i int
		select {
		case <-stopping:
			stopping = nil
			if first == nil {
				w.reportRunning(started, over)
			}
			continue
		case i = <-ended:
		}
		running--
		over[i] = true
		if err := w.results[i].Err; err != nil && first == nil {
			first = &PhaseError{Plan: w.r.Plan, Phase: w.f.steps[i].name, Err: err}
			if w.o.DryRun {
				continue // report the rest too
			}
			stop(fmt.Errorf("%w: %s: %w", ErrStopped, w.f.steps[i].name, context.Canceled))
		}
	}
	switch {
	case first == nil && parent.Err() != nil:
		return context.Cause(parent)
	case first == nil && w.stopped() && slices.Contains(over, false):
		return context.Cause(w.o.Stop)
	}
	return first
}

// stopping returns a channel that is closed when no more phases may start, or nil if that never happens.
func (w *walker[S]) stopping() <-chan struct{} {
	if w.o.Stop == nil {
		return nil
	}
	return w.o.Stop.Done()
}

func (w *walker[S]) stopped() bool { return w.o.Stop != nil && w.o.Stop.Err() != nil }

// reportRunning reports which phases an interrupted run still waits for.
func (w *walker[S]) reportRunning(started, over []bool) {
	var names []string
	for i, s := range w.f.steps {
		if started[i] && !over[i] {
			names = append(names, s.name)
		}
	}
	w.emit(Event{Type: PhaseInfo, Message: "interrupted: waiting until these phases end, and starting no more: " + strings.Join(names, ", ") +
		"; a second interrupt ends them"})
}

// launch starts every step that is ready and returns how many it started. In a dry run it starts one at a time, so that the output follows the order of
// the plan. Steps that are not walked end immediately.
func (w *walker[S]) launch(ctx context.Context, started, over []bool, ended chan<- int) int {
	n := 0
	for again := true; again; {
		again = false
		for i, s := range w.f.steps {
			if started[i] || slices.ContainsFunc(s.needs, func(need int) bool { return !over[need] }) {
				continue
			}
			started[i] = true
			if w.modes[i] != walk {
				if w.modes[i] == skipped {
					w.skip(i, "--skip-phases")
				}
				over[i], again = true, true
				continue
			}
			n++
			go func() {
				w.step(ctx, i)
				ended <- i
			}()
			if w.o.DryRun {
				return n
			}
		}
	}
	return n
}

// rollback undoes what ran, in reverse order. It stops at the first phase that cannot be undone, because that one still needs those before it.
func (w *walker[S]) rollback(ctx context.Context) error {
	var ran []int
	for i, s := range slices.Backward(w.f.steps) {
		if s.phase.Undo != nil && (slices.Contains([]State{Done, Failed, Stopped}, w.results[i].State) || slices.Contains(w.o.Before, s.name)) {
			ran = append(ran, i)
		}
	}
	if w.o.UndoAll != nil {
		if len(ran) == 0 {
			return nil
		}
		return protect(func() error { return w.o.UndoAll(ctx) })
	}
	var errs []error
	for _, i := range ran {
		s, rep := w.f.steps[i], w.reporter(i)
		rep.Info("undoing")
		if err := protect(func() error { return s.phase.Undo(ctx, w.s, rep) }); err != nil {
			errs = append(errs, fmt.Errorf("undoing phase %s: %w", s.name, err))
			break
		}
		w.results[i].State = Undone
		w.emitAt(i, Event{Type: PhaseUndone})
		errs = append(errs, w.record(ctx, Entry{Phase: s.name, Event: string(PhaseUndone), Changes: rep.changes()}))
	}
	return errors.Join(errs...)
}

func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return f()
}

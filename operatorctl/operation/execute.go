// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Reasons why a run ends before its last step.
var (
	errPaused    = errors.New("paused")
	errCancelled = errors.New("cancelled")
	errGone      = errors.New("the cloud was deleted")
)

type execution struct {
	run    *Run
	action Action
	// stop ends the run after the current steps; cancel ends it immediately. Only the end of the process interrupts a reverting step. stopRevert ends the
	// reverting of a cancelled run: a pause before the cancellation no longer counts.
	stop, stopRevert context.Context
	cancel           context.Context
	// base is the context of this process.
	base context.Context
}

// control returns what carries out a user's requests.
func (x *execution) control(ctx context.Context) (pause, cancel context.CancelCauseFunc) {
	var forward, back context.CancelCauseFunc
	x.stop, forward = context.WithCancelCause(ctx)
	x.stopRevert, back = context.WithCancelCause(ctx)
	x.cancel, cancel = context.WithCancelCause(ctx)
	return func(cause error) {
		if x.cancel.Err() != nil {
			back(cause)
		}
		forward(cause)
	}, cancel
}

// perform runs an operation, and writes its status and log to the API server meanwhile.
func (x *execution) perform(ctx context.Context, reader client.Reader, log *slog.Logger) error {
	rec := x.run.record
	if w := rec.Status().Worker; w == nil || w.Number != 1 { // the first pod has no earlier log
		if err := patiently(ctx, func() error { return rec.log.load(ctx, reader) }); err != nil {
			log.Warn("reading the log of an earlier process", "error", err)
		}
	}
	flushing, stop := context.WithCancel(ctx)
	var flush sync.WaitGroup
	flush.Go(func() { rec.flush(flushing, cmp.Or(x.action.Flush, flushInterval), rec.log.write) })
	err := x.do(ctx)
	stop()
	flush.Wait()
	return err
}

// do runs an operation until it ends or pauses, or the process ends.
func (x *execution) do(ctx context.Context) error {
	rec := x.run.record
	x.base = ctx
	was := rec.Status()
	if was.Phase == v1alpha1.OperationPaused && reverts(&was) && x.cancel.Err() != nil {
		half := HalfRestored(&was)
		if half == "" {
			return x.finish(ctx, v1alpha1.OperationFailed, "abandoned while reverting: some changes were not undone")
		}
		if x.run.Operation.Annotations[v1alpha1.AnnotationControl] != "" { // a deleted operation that was resumed goes on
			return x.pause(ctx, fmt.Sprintf("it cannot be cancelled: %s; correct the cause, then: ocadm operation resume %s; see ocadm explain %s",
				half, x.run.Operation.Name, CodeHalfRestored))
		}
	}
	rec.run(was.Phase == v1alpha1.OperationPaused) // a resumed operation gets its full time again
	if err := rec.Update(ctx, x.begin); err != nil {
		return err
	}
	if note := Resumed(&was, time.Now()); note != "" {
		rec.log.add(workflow.Event{Type: workflow.PhaseInfo, Phase: was.Step, Time: time.Now(), Message: note})
		if rec.events != nil {
			rec.events.Eventf(x.run.Operation, nil, corev1.EventTypeNormal, "Resumed", x.run.Operation.Spec.Action, "%s", status.Note(note))
		}
	}
	if rec.Status().Phase != v1alpha1.OperationReverting {
		if done, err := x.forward(ctx); done || err != nil {
			return err
		}
	}
	return x.revert(ctx)
}

// begin sets the status of an operation that starts or continues.
func (x *execution) begin(s *v1alpha1.OnecloudOperationStatus) {
	if s.Start.IsZero() {
		s.Start, s.Log = metav1.Now(), LogName(x.run.Operation.Name)
	}
	s.Message = ""
	if len(s.Steps) == 0 {
		s.Steps = pending(x.action.Steps, false)
	}
	switch {
	case reverts(s):
		s.Phase = v1alpha1.OperationReverting
	case changed(x.action.Steps, s):
		s.Phase = v1alpha1.OperationRunning
	default:
		s.Phase = v1alpha1.OperationPlanning
	}
}

// Resumed returns a note about the age of a paused operation's database copies, because reverting loses what was written since. It returns "" for an
// operation that is not paused or has no copies. It is pure.
func Resumed(s *v1alpha1.OnecloudOperationStatus, now time.Time) string {
	if s.Phase != v1alpha1.OperationPaused || s.Databases == nil || s.Databases.Saved == nil {
		return ""
	}
	at := s.Databases.Saved.Time
	return fmt.Sprintf("the copies of its databases are %s old, from %s: if it reverts, databases whose tables were changed lose the data written since, which is saved separately",
		max(0, now.Sub(at.Time)).Round(time.Minute), at.UTC().Format(time.RFC3339))
}

// CodeHalfRestored is the code of the finding about an operation that cannot be given up.
const CodeHalfRestored = "OCA-7077"

// HalfRestored returns which databases a paused operation has begun to replace while reverting, and where their copies are, or "". Giving it up would let
// services start on databases that hold neither the old nor the new contents. It is pure.
func HalfRestored(s *v1alpha1.OnecloudOperationStatus) string {
	if s.Phase != v1alpha1.OperationPaused || !reverts(s) || s.Databases == nil || len(s.Databases.Restoring) == 0 {
		return ""
	}
	prefixes := lists.Pick(sources(s), func(from source) (string, bool) {
		return prefixOf(s.Databases, from.set) + "…", slices.ContainsFunc(from.databases, func(d string) bool { return slices.Contains(s.Databases.Restoring, d) })
	})
	where := "their copies"
	if len(prefixes) > 0 {
		where = "their copies in databases " + strings.Join(prefixes, ", ")
	}
	return fmt.Sprintf("databases %s are only partly replaced by %s, and services would start on them", strings.Join(s.Databases.Restoring, ", "), where)
}

func prefixOf(d *v1alpha1.OperationDatabases, set string) string {
	if i := slices.IndexFunc(d.Replaced, func(c v1alpha1.DatabaseCopies) bool { return c.Set == set }); i >= 0 {
		return d.Replaced[i].Prefix
	}
	return d.Saved.Prefix
}

// reverts reports whether an operation has begun to revert.
func reverts(s *v1alpha1.OnecloudOperationStatus) bool {
	return slices.ContainsFunc(s.Steps, func(p v1alpha1.OperationStep) bool { return p.Revert })
}

// pending returns steps that have not begun.
func pending[S any](steps []workflow.Phase[S], revert bool) []v1alpha1.OperationStep {
	return lists.Map(steps, func(p workflow.Phase[S]) v1alpha1.OperationStep {
		return v1alpha1.OperationStep{Name: p.Name, Short: p.Short, State: v1alpha1.StepPending, Revert: revert}
	})
}

// changed reports whether a step that may change something has begun.
func changed[S any](steps []workflow.Phase[S], s *v1alpha1.OnecloudOperationStatus) bool {
	return slices.ContainsFunc(s.Steps, func(done v1alpha1.OperationStep) bool {
		return !done.Revert && !done.Start.IsZero() && done.State != v1alpha1.StepSkipped &&
			slices.ContainsFunc(steps, func(p workflow.Phase[S]) bool { return p.Name == done.Name && !p.ReadOnly })
	})
}

// failRunning marks the running step as failed.
func failRunning(s *v1alpha1.OnecloudOperationStatus, why string) {
	for i := range s.Steps {
		if p := &s.Steps[i]; p.State == v1alpha1.StepRunning {
			p.State, p.Message, p.End = v1alpha1.StepFailed, why, metav1.Now()
		}
	}
}

// forward runs the steps. done is true if this process has nothing left to do.
func (x *execution) forward(ctx context.Context) (done bool, err error) {
	rec := x.run.record
	limit := x.action.timeout(x.run.Operation)
	ran, _ := rec.hasRun() // pauses and time without an operator do not count
	limited, end := context.WithTimeoutCause(x.cancel, limit-ran, fmt.Errorf("the operation did not end within %s", limit))
	defer end()
	_, err = x.runner(x.action.Steps).Run(limited, x.run, workflow.Options{Stop: x.stop})
	switch {
	case err == nil:
		return true, x.finish(ctx, v1alpha1.OperationSucceeded, "")
	case ctx.Err() != nil: // the process ends; the next one continues
		return true, nil
	case errors.Is(err, errPaused):
		return true, x.rest(ctx, "paused; to continue: ocadm operation resume "+x.run.Operation.Name)
	}
	why := err.Error()
	if cause := context.Cause(limited); cause != nil && limited.Err() != nil {
		why = cause.Error()
	}
	s := rec.Status()
	if x.cancel.Err() == nil && x.run.Operation.Spec.OnFailure == v1alpha1.OnFailurePause && changed(x.action.Steps, &s) {
		return true, x.pause(ctx, fmt.Sprintf("%s; to try again: ocadm operation resume %s; to revert: ocadm operation cancel %s",
			why, x.run.Operation.Name, x.run.Operation.Name))
	}
	interrupted := slices.ContainsFunc(s.Steps, func(p v1alpha1.OperationStep) bool { return p.State == v1alpha1.StepRunning })
	if interrupted && x.action.Clean != nil {
		if err := x.action.Clean(ctx, x.run); err != nil {
			why += "; removing what was left behind failed: " + err.Error()
		}
		rec.Note(func(s *v1alpha1.OnecloudOperationStatus) { failRunning(s, "it did not end") })
	}
	if !changed(x.action.Steps, &s) || len(x.action.Revert) == 0 {
		phase := v1alpha1.OperationFailed
		if x.cancel.Err() != nil {
			phase = v1alpha1.OperationCancelled
		}
		if !changed(x.action.Steps, &s) {
			why += "; nothing was changed"
		}
		return true, x.finish(ctx, phase, why)
	}
	return false, rec.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message = v1alpha1.OperationReverting, why
		s.Cause = why
		s.Steps = append(s.Steps, pending(x.action.Revert, true)...)
	})
}

// revert undoes the changes. A failed step does not end the operation: a user can remove the cause and resume it.
func (x *execution) revert(ctx context.Context) error {
	stop := x.stop
	if x.cancel.Err() != nil {
		stop = x.stopRevert
	}
	_, err := x.runner(x.action.Revert).Run(ctx, x.run, workflow.Options{Stop: stop})
	cause := x.run.Status().Cause
	switch {
	case err == nil && cause == errCancelled.Error(): // by a user, now or in an earlier process
		return x.finish(ctx, v1alpha1.OperationCancelled, "cancelled; "+asBefore(x.run.Status()))
	case err == nil:
		return x.finish(ctx, v1alpha1.OperationReverted, cause+"; "+asBefore(x.run.Status()))
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the process ends; the next one continues
	case errors.Is(err, errPaused):
		return x.rest(ctx, "paused while reverting; to continue: ocadm operation resume "+x.run.Operation.Name)
	}
	return x.pause(ctx, fmt.Sprintf("reverting failed: %v; correct the cause, then: ocadm operation resume %s", err, x.run.Operation.Name))
}

// asBefore describes what is as it was before, and where the rest is.
func asBefore(s v1alpha1.OnecloudOperationStatus) string {
	text := "all changes were undone"
	d := s.Databases
	if d == nil {
		return text
	}
	var replaced, made []string // the prefixes of both kinds of copies
	for _, c := range d.Replaced {
		if s.Rollout != nil && isOf(c.Set, madeSet(s.Rollout.From)) {
			made = append(made, c.Prefix+"…")
		} else {
			replaced = append(replaced, c.Prefix+"…")
		}
	}
	removed := ""
	if len(made) > 0 {
		removed = "; their contents are in databases " + strings.Join(made, ", ")
	}
	if len(d.Restored) > 0 && len(replaced) > 0 {
		text += fmt.Sprintf("; databases %s were restored as of %s; the data written since is in databases %s", strings.Join(d.Restored, ", "),
			d.Saved.Time.UTC().Format(time.RFC3339), strings.Join(replaced, ", "))
	}
	if len(d.Removed) > 0 {
		text += fmt.Sprintf("; the databases of %s, which this operation created, were removed%s", strings.Join(d.Removed, ", "), removed)
	}
	return text
}

func (x *execution) runner(steps []Step) workflow.Runner[*Run] {
	return workflow.Runner[*Run]{Plan: x.run.Operation.Name, Phases: x.resumed(steps), Sink: sink{x}, Journal: x.run.record}
}

// resumed makes the engine skip the steps that are done. Steps of operations have no Check of their own.
func (x *execution) resumed(steps []Step) []Step {
	out := slices.Clone(steps)
	for i, p := range steps {
		over := func() bool {
			return slices.ContainsFunc(x.run.Status().Steps, func(s v1alpha1.OperationStep) bool { return s.Name == p.Name && s.State.Over() })
		}
		if p.Skip != nil {
			out[i].Skip = func(r *Run) string {
				if over() {
					return ""
				}
				return p.Skip(r)
			}
		}
		out[i].Check = func(context.Context, *Run) (bool, error) { return over(), nil }
	}
	return out
}

// sink records events, and the begin of the first step that may change something.
type sink struct{ x *execution }

func (s sink) Event(e workflow.Event) {
	rec := s.x.run.record
	if e.Type == workflow.PhaseFailed && s.x.base.Err() != nil {
		return // it did not fail: the next process continues it
	}
	rec.Event(e)
	if e.Type != workflow.PhaseStarted {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.op.Status.Phase == v1alpha1.OperationPlanning && changed(s.x.action.Steps, &rec.op.Status) {
		rec.op.Status.Phase = v1alpha1.OperationRunning
		conditions(&rec.op.Status, metav1.Now())
	}
}

func (x *execution) finish(ctx context.Context, phase v1alpha1.OperationPhase, message string) error {
	x.closeLog(ctx)
	return x.run.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End = phase, message, metav1.Now()
	})
}

// pause pauses the operation until a user resumes it.
func (x *execution) pause(ctx context.Context, message string) error {
	if err := SetControl(ctx, x.run.Client, x.run.Operation, v1alpha1.OperationPause); err != nil {
		return err
	}
	return x.rest(ctx, message)
}

func (x *execution) rest(ctx context.Context, message string) error {
	x.closeLog(ctx)
	return x.run.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Phase, s.Message = v1alpha1.OperationPaused, message })
}

// logTimeout bounds the last write of a log.
const logTimeout = 10 * time.Second

func (x *execution) closeLog(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logTimeout)
	defer cancel()
	x.run.record.log.write(ctx)
}

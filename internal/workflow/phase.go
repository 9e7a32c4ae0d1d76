// SPDX-License-Identifier: Apache-2.0

// Package workflow is the step engine of the installer: phases are values, plans are lists of phases, and one runner checks, plans, runs, verifies,
// undoes and journals them. It knows nothing about Kubernetes, hosts or terminals.
package workflow

import (
	"context"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// EventType is the type of an Event.
type EventType string

// The event types. With "-o jsonl", each line of output is one Event; docs/reference/events.md describes them.
const (
	RunStarted    EventType = "run-started"
	PhaseStarted  EventType = "phase-started"
	PhaseSkipped  EventType = "phase-skipped"
	PhaseDone     EventType = "phase-done"
	PhaseFailed   EventType = "phase-failed"
	PhasePlanned  EventType = "phase-planned"
	PhaseInfo     EventType = "info"
	PhaseOutput   EventType = "output"
	PhaseWaiting  EventType = "waiting"
	PhaseProgress EventType = "progress"
	PhaseChanged  EventType = "changed"
	PhaseUndone   EventType = "phase-undone"
	RunDone       EventType = "run-done"
	RunFailed     EventType = "run-failed"
)

// Event is one thing that happened in a run. Renderers (terminal, plain lines, JSON lines) and the journal read the same stream.
type Event struct {
	Time  time.Time `json:"time"`
	Type  EventType `json:"type"`
	Plan  string    `json:"plan,omitempty"`
	Phase string    `json:"phase,omitempty"`
	// Message is the text of an info, output, changed or planned event, the reason of a skipped event, or the error of a failed one.
	Message string `json:"message,omitempty"`
	// Why is set on waiting events.
	Why string `json:"why,omitempty"`
	// Unchanged is set on PhaseDone when Check found the work already done.
	Unchanged bool `json:"unchanged,omitempty"`
	// Changes holds the lines of a dry run's plan.
	Changes []string `json:"changes,omitempty"`
	// Findings explain a failure.
	Findings finding.List `json:"findings,omitempty"`
	// Done, Total and Unit are set on progress events.
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`
	Unit  string `json:"unit,omitempty"`
	// Duration is how long the phase or the run took, in seconds.
	Duration float64 `json:"duration,omitempty"`
	// Index is the number of the phase in the plan, Count the number of phases.
	Index int `json:"index,omitempty"`
	Count int `json:"count,omitempty"`
}

// Sink receives the events of a run, in order, from one goroutine at a time.
type Sink interface {
	Event(Event)
}

// Phase is one named, idempotent step of a plan. S is the state that the phases of a plan share. Every function may be nil.
//
// The runner calls, in this order: Skip, Check, (Plan for a dry run, else) Run, Verify. It does not run a phase whose Check finds the work already
// done, so a repeated command changes nothing, and an interrupted one continues where it stopped. The machine and the cluster are the truth; the
// journal only records what happened, so that reset can undo what this tool made.
type Phase[S any] struct {
	// Name is kebab-case and unique within its plan. A child is "parent/name" in --skip-phases, "init phase parent name" on the command line.
	Name string
	// Short is an imperative one-liner without a period; Long and Example are for "init phase NAME --help".
	Short, Long, Example string
	// After names the phases of the plan that must end before this one starts; nil means the one listed before it. An explicit list, even an empty one,
	// lets phases overlap.
	After []string
	// Skip returns the reason why the phase does not apply to this run, or "" if it applies.
	Skip func(S) string
	// Check reports whether the work is already done. It changes nothing.
	Check func(context.Context, S) (done bool, err error)
	// Plan returns what Run would change, one line each, for --dry-run. It changes nothing.
	Plan func(context.Context, S) ([]string, error)
	// Run does the work and reports progress through the Reporter. It may be repeated.
	Run func(context.Context, S, Reporter) error
	// Verify checks after Run that the work is really done.
	Verify func(context.Context, S) error
	// Undo reverts what Run did, for reset and for init --on-failure=rollback. It may be repeated.
	Undo func(context.Context, S, Reporter) error
	// Timeout bounds Run and Verify together; 0 means DefaultTimeout.
	Timeout time.Duration
	// Patience is how long Run may go without reporting progress before it is cancelled. With a Patience, a Timeout of 0 means several hours: such a
	// phase may take as long as it makes progress.
	Patience time.Duration
	// Always runs the phase even if "phase NAME" does not select it (gathering facts, loading the bundle index).
	Always bool
	// ReadOnly means that Run only reads: a run that ends before any other phase began has changed nothing and is not journaled.
	ReadOnly bool
	// AnyRelease lets the phase run alone on what another release of this program installed, because it replaces nothing of that.
	AnyRelease bool
	// Phases holds the children; a phase has either children or Run.
	Phases []Phase[S]
}

// Todo gives the phase a Check and a Plan based on left, which returns the remaining work, one line each. No lines mean that it is done.
func (p Phase[S]) Todo(left func(context.Context, S) ([]string, error)) Phase[S] {
	p.Plan = left
	p.Check = func(ctx context.Context, s S) (bool, error) {
		lines, err := left(ctx, s)
		return err == nil && len(lines) == 0, err
	}
	return p
}

// Says returns a Plan that always returns these lines.
func Says[S any](lines ...string) func(context.Context, S) ([]string, error) {
	return func(context.Context, S) ([]string, error) { return lines, nil }
}

// Line returns a Plan with one line, which depends on the state.
func Line[S any](line func(S) string) func(context.Context, S) ([]string, error) {
	return func(_ context.Context, s S) ([]string, error) { return []string{line(s)}, nil }
}

// Lines returns the lines of a plan that does the same thing to several targets.
func Lines(does string, to []string) []string {
	return lists.Map(to, func(s string) string { return does + s })
}

// SkipIf returns a Skip that returns reason when is reports true.
func SkipIf[S any](reason string, is func(S) bool) func(S) string {
	return func(s S) string {
		if is(s) {
			return reason
		}
		return ""
	}
}

// Unless adds a reason to skip the phase, which takes precedence over its own.
func (p Phase[S]) Unless(why func(S) string) Phase[S] {
	skip := p.Skip
	p.Skip = func(s S) string {
		if w := why(s); w != "" || skip == nil {
			return w
		}
		return skip(s)
	}
	return p
}

// Over converts a phase over S into one over T; of returns the S of a T. The result has no Undo.
func Over[S, T any](p Phase[S], of func(T) S) Phase[T] {
	out := Phase[T]{Name: p.Name, Short: p.Short, Long: p.Long, After: p.After, Timeout: p.Timeout, Patience: p.Patience, ReadOnly: p.ReadOnly}
	if p.Skip != nil {
		out.Skip = func(t T) string { return p.Skip(of(t)) }
	}
	if p.Check != nil {
		out.Check = func(ctx context.Context, t T) (bool, error) { return p.Check(ctx, of(t)) }
	}
	if p.Plan != nil {
		out.Plan = func(ctx context.Context, t T) ([]string, error) { return p.Plan(ctx, of(t)) }
	}
	if p.Run != nil {
		out.Run = func(ctx context.Context, t T, r Reporter) error { return p.Run(ctx, of(t), r) }
	}
	if p.Verify != nil {
		out.Verify = func(ctx context.Context, t T) error { return p.Verify(ctx, of(t)) }
	}
	out.Phases = lists.Map(p.Phases, func(child Phase[S]) Phase[T] { return Over(child, of) })
	return out
}

// DefaultTimeout bounds a phase that sets no timeout of its own.
const DefaultTimeout = 5 * time.Minute

// Reporter receives the reports of a running phase.
type Reporter interface {
	// Info reports one line of text.
	Info(format string, args ...any)
	// Output reports one line of another program's output.
	Output(line string)
	// Waiting reports what the phase waits for and why it is not there yet, each time that changes. An empty why ends this wait.
	Waiting(what, why string)
	// Progress reports how much of something countable is done; unit is "B" for bytes, or a noun.
	Progress(done, total int64, unit string)
	// Alive renews the patience of the phase for progress that no other report shows.
	Alive()
	// Changed records one change that the phase made, for the summary and the journal: "wrote /etc/ocadm/config.yaml".
	Changed(format string, args ...any)
}

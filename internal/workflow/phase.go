// SPDX-License-Identifier: Apache-2.0

// Package workflow is the step engine of the installer: phases are values, plans are lists of them, one runner checks, plans, runs,
// verifies, undoes and journals them. It knows nothing of Kubernetes, of hosts or of terminals.
package workflow

import (
	"context"
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

// EventType says what an Event is about.
type EventType string

// The event types. The JSON lines of "-o jsonl" are Events, one a line; docs/reference/events.md describes them.
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

// Event is one item of a run's story. Renderers (terminal, plain lines, JSON lines) and the journal read the same stream.
type Event struct {
	Time  time.Time `json:"time"`
	Type  EventType `json:"type"`
	Plan  string    `json:"plan,omitempty"`
	Phase string    `json:"phase,omitempty"`
	// Message is the line of an info, output, changed or planned event, the reason of a skipped one, the error of a failed one.
	Message string `json:"message,omitempty"`
	// Why belongs to waiting events.
	Why string `json:"why,omitempty"`
	// Unchanged is set on PhaseDone when Check found the work already done.
	Unchanged bool `json:"unchanged,omitempty"`
	// Changes are the lines of a dry run's plan.
	Changes []string `json:"changes,omitempty"`
	// Findings explain a failure.
	Findings finding.List `json:"findings,omitempty"`
	// Done, Total and Unit belong to progress events.
	Done  int64  `json:"done,omitempty"`
	Total int64  `json:"total,omitempty"`
	Unit  string `json:"unit,omitempty"`
	// Duration is how long the phase or the run took, in seconds.
	Duration float64 `json:"duration,omitempty"`
	// Index and Count number the phases of the plan.
	Index int `json:"index,omitempty"`
	Count int `json:"count,omitempty"`
}

// Sink takes the events of a run, in order, from one goroutine at a time.
type Sink interface {
	Event(Event)
}

// Phase is one named, idempotent step of a plan. S is what the phases of a plan share. A nil function is an ability the phase lacks.
//
// The runner calls, in this order: Skip, Check, (Plan for a dry run, else) Run, Verify. A phase whose Check finds its work already
// done is not run: so a repeated command changes nothing, and one that was cut off continues where it stopped. The machine and the
// cluster are the truth; the journal only records what happened and lets reset take back what this tool made.
type Phase[S any] struct {
	// Name is kebab-case, unique within its plan; a child is "parent/name" in --skip-phases, "init phase parent name" on the command line.
	Name string
	// Short is an imperative one-liner without a period; Long and Example are for "init phase NAME --help".
	Short, Long, Example string
	// After names the phases of the plan that must have ended before this one starts. nil means: the one listed before it.
	// An explicit list (also an empty one) lets phases overlap.
	After []string
	// Skip gives the reason why the phase does not apply to this run; "" means that it does.
	Skip func(S) string
	// Check reads and reports whether the work is already done. It changes nothing.
	Check func(context.Context, S) (done bool, err error)
	// Plan reads and returns what Run would change, one line each, for --dry-run. It changes nothing.
	Plan func(context.Context, S) ([]string, error)
	// Run does the work. It may be repeated. It reports progress through the Reporter.
	Run func(context.Context, S, Reporter) error
	// Verify checks after Run that the work is really done.
	Verify func(context.Context, S) error
	// Undo takes back what Run did; used by reset and by init --on-failure=rollback. It may be repeated.
	Undo func(context.Context, S, Reporter) error
	// Timeout bounds Run and Verify together; 0 means DefaultTimeout.
	Timeout time.Duration
	// Patience is how long Run may report nothing new before it is given up. With it, a Timeout of 0 means several hours: such a phase
	// takes as long as it makes progress.
	Patience time.Duration
	// Always runs the phase even if it is not among the phases selected by a single "phase NAME" (gathering facts, loading the bundle index).
	Always bool
	// ReadOnly says that Run only looks: a run that ends before any other phase began has changed nothing and is not journaled.
	ReadOnly bool
	// AnyRelease says that the phase alone may run on what another release of this program installed, because it replaces nothing of that.
	AnyRelease bool
	// Phases are the children; a phase has either children or Run.
	Phases []Phase[S]
}

// Todo gives the phase a Check and a Plan that read what is left to do, one line each: it is done when nothing is left.
func (p Phase[S]) Todo(left func(context.Context, S) ([]string, error)) Phase[S] {
	p.Plan = left
	p.Check = func(ctx context.Context, s S) (bool, error) {
		lines, err := left(ctx, s)
		return err == nil && len(lines) == 0, err
	}
	return p
}

// Says is a Plan that is always the same.
func Says[S any](lines ...string) func(context.Context, S) ([]string, error) {
	return func(context.Context, S) ([]string, error) { return lines, nil }
}

// Lines are the lines of a plan that does the same to each of several things.
func Lines(does string, to []string) []string {
	out := make([]string, len(to))
	for i, s := range to {
		out[i] = does + s
	}
	return out
}

// SkipIf is a Skip with this reason.
func SkipIf[S any](reason string, is func(S) bool) func(S) string {
	return func(s S) string {
		if is(s) {
			return reason
		}
		return ""
	}
}

// Unless gives the phase another reason to be skipped, which comes before its own.
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

// Over makes a phase over S one over T, from which of gets S. It is not undone there.
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
	for _, child := range p.Phases {
		out.Phases = append(out.Phases, Over(child, of))
	}
	return out
}

// DefaultTimeout bounds a phase that names no timeout of its own.
const DefaultTimeout = 5 * time.Minute

// Reporter takes what a running phase has to say.
type Reporter interface {
	// Info is one line of story.
	Info(format string, args ...any)
	// Output is one line of another program's output.
	Output(line string)
	// Waiting reports what the phase waits for and why it is not there yet, as often as that changes. An empty why ends this wait.
	Waiting(what, why string)
	// Progress reports how much of something countable is done; unit is "B" for bytes or a noun.
	Progress(done, total int64, unit string)
	// Alive extends the patience of the phase for progress that no other report shows.
	Alive()
	// Changed records one thing that the phase changed, for the summary and the journal: "wrote /etc/ocadm/config.yaml".
	Changed(format string, args ...any)
}

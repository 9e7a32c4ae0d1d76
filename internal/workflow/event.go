// SPDX-License-Identifier: Apache-2.0

package workflow

import (
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

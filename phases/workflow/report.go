// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// progressInterval is how often progress is told at most.
const progressInterval = 100 * time.Millisecond

// reporter turns what a phase says into events.
type reporter struct {
	emit func(Event)

	mu       sync.Mutex
	changed  []string
	what     string
	told     time.Time
	toldOver bool
}

func (r *reporter) Info(format string, args ...any) {
	r.emit(Event{Type: PhaseInfo, Message: fmt.Sprintf(format, args...)})
}

func (r *reporter) Output(line string) {
	r.emit(Event{Type: PhaseOutput, Message: line})
}

func (r *reporter) Waiting(what, why string) {
	r.mu.Lock()
	r.what = what
	if why != "" {
		r.what += " (" + why + ")"
	}
	r.mu.Unlock()
	r.emit(Event{Type: PhaseWaiting, Message: what, Why: why})
}

func (r *reporter) Progress(done, total int64, unit string) {
	over := total > 0 && done >= total
	r.mu.Lock()
	tell := time.Since(r.told) >= progressInterval || over && !r.toldOver
	if tell {
		r.told, r.toldOver = time.Now(), over
	}
	r.mu.Unlock()
	if tell {
		r.emit(Event{Type: PhaseProgress, Done: done, Total: total, Unit: unit})
	}
}

func (r *reporter) Changed(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.changed = append(r.changed, line)
	r.mu.Unlock()
	r.emit(Event{Type: PhaseChanged, Message: line})
}

func (r *reporter) changes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changed)
}

// waiting is what the phase last said that it waits for.
func (r *reporter) waiting() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.what
}

// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// progressInterval is the minimum time between two progress events of a phase.
	progressInterval = 100 * time.Millisecond
	// waitingInterval is how often an unchanged wait is reported again.
	waitingInterval = 30 * time.Second
)

type reporter struct {
	emit     func(Event)
	patience *patience // nil if the phase has none

	mu       sync.Mutex
	changed  []string
	waits    []awaited // latest last
	sent     time.Time // time of the last progress event
	sentOver bool      // that event reported completion
}

// awaited is something that a phase waits for.
type awaited struct {
	what, why string
	since     time.Time
}

func (w awaited) event() Event {
	return Event{Type: PhaseWaiting, Message: w.what, Why: w.why, Duration: time.Since(w.since).Seconds()}
}

func (r *reporter) Info(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.patience.said(line)
	r.emit(Event{Type: PhaseInfo, Message: line})
}

func (r *reporter) Output(line string) {
	r.patience.said(line)
	r.emit(Event{Type: PhaseOutput, Message: line})
}

func (r *reporter) Waiting(what, why string) {
	r.patience.said(what + ": " + why)
	r.mu.Lock()
	w := awaited{what, why, time.Now()}
	if i := slices.IndexFunc(r.waits, func(w awaited) bool { return w.what == what }); i >= 0 {
		w.since = r.waits[i].since
		r.waits = slices.Delete(r.waits, i, i+1)
	}
	if why != "" {
		r.waits = append(r.waits, w)
	}
	r.mu.Unlock()
	if why != "" {
		r.emit(w.event())
	}
}

func (r *reporter) Progress(done, total int64, unit string) {
	r.patience.counted(done, unit)
	over := total > 0 && done >= total
	r.mu.Lock()
	due := time.Since(r.sent) >= progressInterval || over && !r.sentOver
	if due {
		r.sent, r.sentOver = time.Now(), over
	}
	r.mu.Unlock()
	if due {
		r.emit(Event{Type: PhaseProgress, Done: done, Total: total, Unit: unit})
	}
}

func (r *reporter) Alive() { r.patience.renew() }

// repeat reports the latest wait again, with its age, until ctx ends.
func (r *reporter) repeat(ctx context.Context) {
	tick := time.NewTicker(waitingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if w, ok := r.latest(); ok {
				r.emit(w.event())
			}
		}
	}
}

func (r *reporter) latest() (awaited, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waits) == 0 {
		return awaited{}, false
	}
	return r.waits[len(r.waits)-1], true
}

func (r *reporter) Changed(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.patience.said(line)
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

// waiting returns what the phase last reported that it waits for.
func (r *reporter) waiting() string {
	w, _ := r.latest()
	if w.why == "" {
		return w.what
	}
	return w.what + " (" + w.why + ")"
}

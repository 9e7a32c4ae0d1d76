// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
)

// Where every report is a line: how often the same progress is repeated, and how soon a wait's new reason is reported.
const (
	sameInterval   = 5 * time.Second
	reasonInterval = 2 * time.Second
	// notableWait is how long a wait must last before its duration is shown.
	notableWait = 20 * time.Second
)

// lines writes a line for each event worth logging.
type lines struct {
	w        io.Writer
	o        Options
	reported map[string]time.Time      // time of the last report, by phase and wait
	last     map[string]string         // the last line
	first    map[string]workflow.Event // the first progress of a phase
	complete map[string]string         // the last complete amount of a phase, which is not repeated
}

// Lines returns a renderer that writes plain lines to w, even if w is a terminal.
func Lines(w io.Writer, o Options) Renderer {
	return &lines{w: w, o: o, reported: map[string]time.Time{}, last: map[string]string{}, first: map[string]workflow.Event{}, complete: map[string]string{}}
}

func (l *lines) Close() {}

func (l *lines) Event(e workflow.Event) {
	if text := l.text(e); text != "" {
		fmt.Fprintln(l.w, text)
	}
}

func (l *lines) text(e workflow.Event) string {
	switch e.Type {
	case workflow.PhaseWaiting:
		line := waiting(e)
		if !l.due(e, e.Message, line) {
			return ""
		}
		if age := seconds(e.Duration); age >= notableWait {
			line += " (for " + Seconds(age) + ")"
		}
		return prefix(e) + line
	case workflow.PhaseProgress:
		rate := l.rate(e)
		if over := e.Total > 0 && e.Done >= e.Total; over && l.complete[e.Phase] != amount(e) || !over && l.due(e, "", "progress") {
			if over {
				l.complete[e.Phase] = amount(e)
			}
			return prefix(e) + amount(e) + rate
		}
		return ""
	}
	return story(e, l.o.Verbose)
}

// due reports whether it is time to report a matter of the phase again.
func (l *lines) due(e workflow.Event, matter, line string) bool {
	key := e.Phase + " " + matter
	interval := reasonInterval
	if l.last[key] == line {
		interval = sameInterval
	}
	if e.Time.Sub(l.reported[key]) < interval {
		return false
	}
	l.reported[key], l.last[key] = e.Time, line
	return true
}

// rate returns the bytes per second since the first progress of the phase, once a second has passed.
func (l *lines) rate(e workflow.Event) string {
	first, ok := l.first[e.Phase]
	if !ok || e.Done < first.Done { // it has begun again, for example to read a file a second time
		l.first[e.Phase] = e
		return ""
	}
	age := e.Time.Sub(first.Time).Seconds()
	if e.Unit != "B" || age < 1 {
		return ""
	}
	return fmt.Sprintf(", %s/s", Bytes(int64(float64(e.Done-first.Done)/age)))
}

// story returns the line for an event, "" if it has none.
func story(e workflow.Event, verbose bool) string {
	switch e.Type {
	case workflow.RunStarted:
		return ""
	case workflow.PhaseStarted:
		return prefix(e) + e.Message
	case workflow.PhaseSkipped:
		return prefix(e) + "skipped: " + e.Message
	case workflow.PhaseDone:
		if e.Unchanged {
			return prefix(e) + "already done"
		}
		return prefix(e) + "done in " + Seconds(seconds(e.Duration))
	case workflow.PhaseFailed:
		return prefix(e) + "failed: " + firstLine(e.Message)
	case workflow.PhaseUndone:
		return prefix(e) + "undone"
	case workflow.PhaseInfo:
		return prefix(e) + e.Message
	case workflow.PhasePlanned:
		text := prefix(e) + "would:"
		for _, c := range e.Changes {
			text += "\n    " + c
		}
		if len(e.Changes) == 0 {
			return prefix(e) + "would change nothing"
		}
		return text
	case workflow.PhaseOutput, workflow.PhaseChanged:
		if verbose {
			return prefix(e) + "  " + e.Message
		}
	}
	return ""
}

func prefix(e workflow.Event) string {
	if e.Phase == "" {
		return ""
	}
	return "[" + e.Phase + "] "
}

func waiting(e workflow.Event) string {
	text := "waiting for " + e.Message
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func amount(e workflow.Event) string {
	unit := " " + e.Unit
	if e.Unit == "" {
		unit = ""
	}
	if e.Unit == "B" {
		if e.Total > 0 {
			return fmt.Sprintf("%s of %s (%d%%)", Bytes(e.Done), Bytes(e.Total), e.Done*100/e.Total)
		}
		return Bytes(e.Done)
	}
	if e.Total > 0 {
		return fmt.Sprintf("%d of %d%s", e.Done, e.Total, unit)
	}
	return fmt.Sprintf("%d%s", e.Done, unit)
}

// Bytes formats a size: "512 B", "3.4 MiB".
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 4 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

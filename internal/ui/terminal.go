// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/schollz/progressbar/v3"

	"yunion.io/x/ocadm/internal/workflow"
)

const (
	redrawInterval = 200 * time.Millisecond
	barWidth       = 24
	clearLine      = "\r\x1b[K"
)

// terminal keeps a status line below the other lines: the progress of the run, what the oldest running phase does or waits for, and for how long.
type terminal struct {
	w     io.Writer
	o     Options
	width func() int

	mu      sync.Mutex
	running []*activity
	ended   int
	count   int
	drawn   string // the status line that is on the screen
	end     func()
}

type activity struct {
	name, text string
	since      time.Time // time when text last changed
	bar        *progressbar.ProgressBar
	total      int64
}

func newTerminal(w io.Writer, o Options) *terminal {
	t := &terminal{w: w, o: o, width: func() int { width, _ := size(w); return width }}
	t.end = every(redrawInterval, func(time.Time) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.draw()
	})
	return t
}

func (t *terminal) Close() {
	t.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = nil
	t.erase()
}

func (t *terminal) Event(e workflow.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count = max(t.count, e.Count)
	switch e.Type {
	case workflow.PhaseStarted:
		t.running = append(t.running, &activity{name: e.Phase, text: e.Message, since: e.Time})
	case workflow.PhaseWaiting:
		t.activity(e, func(a *activity) {
			if text := waiting(e); a.text != text {
				a.text, a.since, a.bar = text, e.Time, nil
			}
		})
	case workflow.PhaseProgress:
		t.activity(e, func(a *activity) { a.progress(e) })
	case workflow.PhaseDone, workflow.PhaseFailed, workflow.PhaseSkipped, workflow.PhasePlanned:
		t.running = slices.DeleteFunc(t.running, func(a *activity) bool { return a.name == e.Phase })
		t.ended++
	}
	if line := t.line(e); line != "" {
		t.erase()
		fmt.Fprintln(t.w, line)
	}
	t.draw()
}

// activity changes the running phase of an event. A command without phases starts none: its first wait or progress begins one.
func (t *terminal) activity(e workflow.Event, change func(*activity)) {
	i := slices.IndexFunc(t.running, func(a *activity) bool { return a.name == e.Phase })
	if i < 0 && t.count == 0 {
		i, t.running = len(t.running), append(t.running, &activity{name: e.Phase})
	}
	if i >= 0 {
		change(t.running[i])
	}
}

func (a *activity) progress(e workflow.Event) {
	if e.Total <= 0 {
		a.text, a.bar = amount(e), nil
		return
	}
	if a.bar == nil || a.total != e.Total {
		a.total = e.Total
		a.bar = progressbar.NewOptions64(e.Total, progressbar.OptionSetWriter(io.Discard), progressbar.OptionSetWidth(barWidth),
			progressbar.OptionShowBytes(e.Unit == "B"), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionThrottle(0))
	}
	_ = a.bar.Set64(e.Done) // only the display fails
}

func (t *terminal) line(e workflow.Event) string {
	switch e.Type {
	case workflow.PhaseStarted:
		return "" // shown in the status line
	case workflow.PhaseDone:
		if e.Unchanged {
			return t.mark("=", "2") + " " + e.Phase + ": already done"
		}
		return t.mark("✓", "32") + " " + e.Phase + " (" + Seconds(seconds(e.Duration)) + ")"
	case workflow.PhaseFailed:
		return t.mark("✗", "31") + " " + e.Phase + ": " + firstLine(e.Message)
	case workflow.PhaseSkipped:
		return t.mark("-", "2") + " " + e.Phase + ": skipped, " + e.Message
	}
	return story(e, t.o.Verbose)
}

func (t *terminal) mark(s, code string) string {
	if !t.o.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *terminal) erase() {
	if t.drawn != "" {
		fmt.Fprint(t.w, clearLine)
		t.drawn = ""
	}
}

func (t *terminal) draw() {
	if len(t.running) == 0 {
		t.erase()
		return
	}
	if line := t.status(time.Now()); line != t.drawn {
		fmt.Fprint(t.w, clearLine+line)
		t.drawn = line
	}
}

// status returns the status line. A phase with a bar takes precedence, then the one that has run longest.
func (t *terminal) status(now time.Time) string {
	a := t.running[0]
	for _, b := range t.running {
		if b.bar != nil {
			a = b
			break
		}
	}
	line := strings.TrimPrefix(fmt.Sprintf("%d/%d %s: ", t.ended, t.count, a.name), "0/0 ") // without phases
	if a.bar != nil {
		line += strings.TrimSpace(a.bar.String())
	} else {
		line += a.text
		if s := now.Sub(a.since); s >= time.Second {
			line += fmt.Sprintf(" (%s)", s.Round(time.Second))
		}
	}
	if n := len(t.running) - 1; n > 0 {
		line += fmt.Sprintf(" (and %d more)", n)
	}
	line = strings.Map(printable, line) // a reason may have several lines, and only the last would be replaced
	if uniseg.StringWidth(line) < t.width() {
		return line
	}
	for uniseg.StringWidth(line) > max(0, t.width()-2) {
		_, last := utf8.DecodeLastRuneInString(line)
		line = line[:len(line)-last]
	}
	return line + "…"
}

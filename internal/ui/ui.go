// SPDX-License-Identifier: Apache-2.0

// Package ui produces the output of ocadm: it renders the events of a run on a terminal, as plain lines or as JSON, prints findings and tables, and
// asks for confirmation. It makes no decisions.
package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"yunion.io/x/ocadm/internal/workflow"
)

// Renderer renders the events of a run until it is closed.
type Renderer interface {
	workflow.Sink
	Close()
}

// Options configure a renderer.
type Options struct {
	// Verbose also shows the output of programs and every change.
	Verbose bool
	// Color enables colours; it is ignored if the output is not a terminal.
	Color bool
}

// New returns the renderer for w: a status line and bars for a terminal, plain lines for anything else.
func New(w io.Writer, o Options) Renderer {
	if IsTerminal(w) {
		return newTerminal(w, o)
	}
	return Lines(w, o)
}

// IsTerminal reports whether w is a terminal that can move its cursor.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Quiet returns a renderer that ignores all events.
func Quiet() Renderer { return sink(func(workflow.Event) {}) }

// JSONL returns a renderer that writes every event as a line of JSON, as described in docs/reference/events.md.
func JSONL(w io.Writer) Renderer {
	enc := json.NewEncoder(w)
	return sink(func(e workflow.Event) { _ = enc.Encode(e) }) // only the display fails
}

// sink is a Renderer with nothing to close.
type sink func(workflow.Event)

func (s sink) Event(e workflow.Event) { s(e) }
func (sink) Close()                   {}

// Tee returns a renderer that passes every event to all the renderers.
func Tee(all ...Renderer) Renderer { return tee(all) }

type tee []Renderer

func (t tee) Event(e workflow.Event) {
	for _, r := range t {
		r.Event(e)
	}
}

func (t tee) Close() {
	for _, r := range t {
		r.Close()
	}
}

// Seconds formats a duration: "0.4s", "12.3s", "3m5s".
func Seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

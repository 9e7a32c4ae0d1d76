// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// renderer returns the destination of events. The plan of a dry run is data.
func (a *app) renderer(f runFlags) ui.Renderer {
	o := ui.Options{Verbose: a.verbosity > 0, Color: os.Getenv("NO_COLOR") == ""}
	switch {
	case f.output.String() == "jsonl":
		return ui.JSONL(a.events)
	case f.run.DryRun:
		return ui.Lines(a.events, o)
	case f.quiet:
		return ui.Quiet()
	}
	return ui.New(a.Err, o)
}

// events remembers the first error of writing to it, other than that its reader has ended.
type events struct {
	io.Writer
	err error
}

func (e *events) Write(p []byte) (n int, err error) {
	if n, err = e.Writer.Write(p); e.err == nil && !errors.Is(err, syscall.EPIPE) {
		e.err = err
	}
	return n, err
}

// redacted removes secrets from events.
func (a *app) redacted(r ui.Renderer) workflow.Sink { return redactedSink{a.redact, r} }

type redactedSink struct {
	redact *ui.Redactor
	next   workflow.Sink
}

func (s redactedSink) lines(list []string) []string {
	return lists.Map(list, s.redact.Text)
}

func (s redactedSink) Event(e workflow.Event) {
	e.Message, e.Why = s.redact.Text(e.Message), s.redact.Text(e.Why)
	e.Changes = s.lines(e.Changes)
	e.Findings = slices.Clone(e.Findings)
	for i, f := range e.Findings {
		f.What, f.Cause, f.Remedy, f.Evidence = s.redact.Text(f.What), s.redact.Text(f.Cause), s.redact.Text(f.Remedy), s.lines(f.Evidence)
		e.Findings[i] = f
	}
	s.next.Event(e)
}

// openLog opens the log of this run and redirects every logger to it. If that fails, the run continues without a log.
func (a *app) openLog(h *host.Host, name string, events *ui.Renderer) (closeLog func()) {
	path := h.Files.Path(logDir + "/" + time.Now().UTC().Format("20060102T150405Z") + "-" + name + ".log")
	if err := os.MkdirAll(h.Files.Path(logDir), 0o700); err != nil {
		return func() {}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return func() {}
	}
	a.logFile = path
	w := a.redact.Writer(f)
	logger := a.logger(w)
	logger.Info("run started", "command", name, "version", version.Version, "kubernetes", version.Kubernetes, "pid", os.Getpid())
	*events = ui.Slog(logger)
	return func() {
		a.logger(io.Discard)
		_ = f.Close() // every line has been written
	}
}

// logger sets the logger of this process: w gets everything, standard error what -v selects.
func (a *app) logger(w io.Writer) *slog.Logger {
	return ui.SetLogger(w, a.redact.Writer(a.Err), a.verbosity)
}

func writeJSONLine(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

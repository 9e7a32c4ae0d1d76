// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/cloud"
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

// refused reports a run that ended before its first phase. Those who asked for events, such as scripts and "fleet apply", read nothing else.
func (a *app) refused(f runFlags, plan string, err error) {
	if f.output.String() == "jsonl" {
		a.redacted(ui.JSONL(a.events)).Event(workflow.Event{Time: time.Now(), Type: workflow.RunFailed, Plan: plan, Message: err.Error(), Findings: finding.Of(err)})
	}
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

// note reports an interrupted run and adopts its result. It refuses to continue without the database server of that run, because the embedded
// database would be installed instead.
func note(sink workflow.Sink, plan string, journal *workflow.FileJournal, opts *workflow.Options) error {
	report := func(format string, args ...any) {
		sink.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseInfo, Plan: plan, Message: fmt.Sprintf(format, args...)})
	}
	in, err := journal.Resume(plan)
	if err != nil {
		report("cannot read the journal: %v", err)
		return nil
	}
	if in == nil || in.Phase == "" {
		return nil
	}
	const database = "--mysql-host"
	did := slices.ContainsFunc(in.Did, func(phase string) bool { return phase != "preflight" })
	if was := in.Inputs[database]; did && was != "" && opts.Inputs[database] == "" {
		return cloud.OtherSettings([]string{fmt.Sprintf("%s was %s in the interrupted run, but is missing now", database, was)})
	}
	opts.Before = in.Did
	what := "was interrupted"
	if in.Error != "" {
		what = "failed"
	}
	report("the last %s %s in phase %s, %s ago; continuing from there", plan, what, in.Phase, time.Since(in.Last).Round(time.Second))
	if len(opts.Only) > 0 {
		return nil
	}
	for _, d := range in.Differences(opts.Inputs) {
		report("  changed since then: %s", d)
	}
	return nil
}

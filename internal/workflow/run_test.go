// SPDX-License-Identifier: Apache-2.0

package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// log records what the phases of a test do.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, s)
}

type phase = workflow.Phase[*log]

func step(name string, after ...string) phase {
	p := phase{Name: name, Short: "Do " + name, Run: func(_ context.Context, l *log, _ workflow.Reporter) error {
		l.add(name)
		return nil
	}}
	if len(after) > 0 {
		p.After = slices.DeleteFunc(after, func(s string) bool { return s == "" })
	}
	return p
}

func failing(p phase, err error) phase {
	p.Run = func(context.Context, *log, workflow.Reporter) error { return err }
	return p
}

type events struct{ list []workflow.Event }

func (e *events) Event(v workflow.Event) { e.list = append(e.list, v) }

func (e *events) types() []string {
	var out []string
	for _, v := range e.list {
		out = append(out, strings.TrimSuffix(string(v.Type)+" "+v.Phase, " "))
	}
	return out
}

func run(t *testing.T, o workflow.Options, phases ...phase) ([]string, *events, workflow.Result, error) {
	t.Helper()
	l, ev := &log{}, &events{}
	r := workflow.Runner[*log]{Plan: "init", Phases: phases, Sink: ev}
	res, err := r.Run(t.Context(), l, o)
	return l.lines, ev, res, err
}

func TestOrderWithoutAfterIsThatOfTheList(t *testing.T) {
	parent := phase{Name: "c", Short: "Do c", Phases: []phase{step("x"), step("y")}}
	got, ev, _, err := run(t, workflow.Options{}, step("a"), step("b"), parent, step("d"))
	require.NoError(t, err)
	if diff := cmp.Diff([]string{"a", "b", "x", "y", "d"}, got); diff != "" {
		t.Error(diff)
	}
	want := []string{"run-started", "phase-started a", "phase-done a", "phase-started b", "phase-done b", "phase-started c/x",
		"phase-done c/x", "phase-started c/y", "phase-done c/y", "phase-started d", "phase-done d", "run-done"}
	if diff := cmp.Diff(want, ev.types()); diff != "" {
		t.Error(diff)
	}
}

func TestAfterAllowsOverlapAndLaterPhases(t *testing.T) {
	here, there := make(chan struct{}), make(chan struct{})
	meet := func(mine, other chan struct{}) func(context.Context, *log, workflow.Reporter) error {
		return func(ctx context.Context, _ *log, _ workflow.Reporter) error {
			close(mine)
			select {
			case <-other:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	a, b := step("a", ""), step("b", "")
	a.Run, b.Run = meet(here, there), meet(there, here)
	a.Timeout, b.Timeout = 20*time.Second, 20*time.Second
	got, _, _, err := run(t, workflow.Options{}, step("last", "late"), a, b, step("late", "a", "b"))
	require.NoError(t, err)
	if diff := cmp.Diff([]string{"late", "last"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFailureStopsTheRest(t *testing.T) {
	boom := errors.New("boom")
	slow := step("slow", "")
	slow.Run = func(ctx context.Context, l *log, _ workflow.Reporter) error {
		<-ctx.Done()
		l.add("slow was stopped")
		return ctx.Err()
	}
	got, _, res, err := run(t, workflow.Options{}, slow, failing(step("bad", ""), boom), step("never"))
	var pe *workflow.PhaseError
	if !errors.As(err, &pe) || pe.Phase != "bad" || !errors.Is(err, boom) {
		t.Fatalf("err = %v", err)
	}
	if finding.ExitStatus(err) != finding.ExitOther {
		t.Errorf("the stopped phase hides the failed one: exit status %d", finding.ExitStatus(err))
	}
	if diff := cmp.Diff([]string{"slow was stopped"}, got); diff != "" {
		t.Error(diff)
	}
	states := map[string]workflow.State{}
	for _, s := range res.Steps {
		states[s.Name] = s.State
	}
	if diff := cmp.Diff(map[string]workflow.State{"slow": workflow.Stopped, "bad": workflow.Failed, "never": workflow.Pending}, states); diff != "" {
		t.Error(diff)
	}
}

func TestInterruptedRunIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	p := step("a")
	p.Run = func(ctx context.Context, _ *log, _ workflow.Reporter) error {
		cancel(fmt.Errorf("interrupted: %w", context.Canceled))
		<-ctx.Done()
		return errors.New("signal: terminated")
	}
	_, err := workflow.Runner[*log]{Plan: "init", Phases: []phase{p, step("b")}}.Run(ctx, &log{}, workflow.Options{})
	if finding.ExitStatus(err) != finding.ExitInterrupted {
		t.Errorf("exit status %d of %v", finding.ExitStatus(err), err)
	}
}

func TestCompletedPhaseIsSkipped(t *testing.T) {
	done := step("done")
	done.Check = func(context.Context, *log) (bool, error) { return true, nil }
	verified := step("verified")
	verified.Verify = func(context.Context, *log) error { return errors.New("it is not there") }
	got, ev, _, err := run(t, workflow.Options{}, done, verified)
	if err == nil || !strings.Contains(err.Error(), "it is not there") {
		t.Errorf("Verify's error is lost: %v", err)
	}
	if diff := cmp.Diff([]string{"verified"}, got); diff != "" {
		t.Error(diff)
	}
	if !ev.list[2].Unchanged {
		t.Errorf("%+v", ev.list[2])
	}
}

func TestDryRunOnlyReads(t *testing.T) {
	planned, notYet := step("planned"), step("not-yet")
	planned.Plan = func(context.Context, *log) ([]string, error) { return []string{"write /a"}, nil }
	notYet.Check = func(context.Context, *log) (bool, error) { return false, errors.New("connection refused") }
	bad := step("bad")
	bad.Check = func(context.Context, *log) (bool, error) {
		return false, finding.Finding{Code: "OCA-1010", Severity: finding.Error, What: "No"}
	}
	looks := step("looks") // a dry run looks, too: it is not work for later
	looks.ReadOnly, looks.Plan = true, func(context.Context, *log) ([]string, error) { return []string{"warning: slow disk"}, nil }
	j := workflow.NewJournal(filepath.Join(t.TempDir(), "journal"))
	ev := &events{}
	l := &log{}
	res, err := workflow.Runner[*log]{Plan: "init", Phases: []phase{planned, bad, notYet, looks}, Sink: ev, Journal: j}.
		Run(t.Context(), l, workflow.Options{DryRun: true, OnFailure: workflow.Rollback})
	if finding.ExitStatus(err) != 10 {
		t.Errorf("err = %v", err)
	}
	if len(l.lines) > 0 {
		t.Errorf("ran: %v", l.lines)
	}
	if entries, err := j.Entries(); err != nil || entries != nil {
		t.Errorf("wrote a journal: %v, %v", entries, err)
	}
	if res.Steps[0].State != workflow.Planned || res.Steps[2].State != workflow.Planned || res.Steps[0].Changes[0] != "write /a" || res.Steps[3].State != workflow.Done {
		t.Errorf("%+v", res.Steps)
	}
}

func TestSelection(t *testing.T) {
	parent := phase{Name: "certs", Short: "Make certificates", Phases: []phase{step("ca"), step("apiserver")}}
	gather := step("gather")
	gather.Always = true
	plan := []phase{gather, step("preflight"), parent, step("start")}
	for name, c := range map[string]struct {
		o    workflow.Options
		want []string
	}{
		"skip a parent": {workflow.Options{Skip: []string{"certs"}}, []string{"gather", "preflight", "start"}},
		"skip a child":  {workflow.Options{Skip: []string{"certs/ca"}}, []string{"gather", "preflight", "apiserver", "start"}},
		"one child":     {workflow.Options{Only: []string{"certs/ca"}}, []string{"gather", "ca"}},
		"one parent":    {workflow.Options{Only: []string{"certs"}}, []string{"gather", "ca", "apiserver"}},
	} {
		got, _, _, err := run(t, c.o, plan...)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Error(name, err, diff)
		}
	}
	_, _, _, err := run(t, workflow.Options{Skip: []string{"prefligth"}}, plan...)
	l := finding.Of(err)
	if len(l) != 1 || l[0].ExitCode() != finding.ExitUsage || !strings.Contains(l[0].Remedy, `"preflight"`) || !strings.Contains(l[0].Cause, "certs/apiserver") {
		t.Errorf("%+v", l)
	}
}

func TestSkipOfAParentCoversItsChildren(t *testing.T) {
	parent := phase{Name: "p", Short: "Do p", Skip: func(*log) string { return "no need" }, Phases: []phase{step("a"), step("b")}}
	got, ev, _, err := run(t, workflow.Options{}, parent, step("c"))
	if err != nil || !slices.Equal(got, []string{"c"}) {
		t.Error(got, err)
	}
	if ev.list[1].Type != workflow.PhaseSkipped || ev.list[1].Message != "no need" {
		t.Errorf("%+v", ev.list[1])
	}
}

func TestRunThatOnlyLookedIsNotJournaled(t *testing.T) {
	look := failing(step("look"), errors.New("no"))
	look.ReadOnly = true
	j := workflow.NewJournal(filepath.Join(t.TempDir(), "state", "journal.jsonl"))
	r := workflow.Runner[*log]{Plan: "init", Phases: []phase{look, step("work")}, Journal: j}
	if _, err := r.Run(t.Context(), &log{}, workflow.Options{}); err == nil {
		t.Fatal("want the failure of look")
	}
	if entries, err := j.Entries(); err != nil || len(entries) > 0 {
		t.Errorf("journal %v, %v, want none", entries, err)
	}
	r.Phases[0] = step("look")
	r.Phases[0].ReadOnly = true
	if _, err := r.Run(t.Context(), &log{}, workflow.Options{}); err != nil {
		t.Fatal(err)
	}
	entries, err := j.Entries()
	require.NoError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, strings.TrimSpace(e.Event+" "+e.Phase))
	}
	want := []string{"run-started", "phase-started look", "phase-done look", "phase-started work", "phase-done work", "run-done"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestPanicIsAnError(t *testing.T) {
	p := step("a")
	p.Run = func(context.Context, *log, workflow.Reporter) error { panic("ouch") }
	_, _, _, err := run(t, workflow.Options{}, p, step("b"))
	if err == nil || !strings.Contains(err.Error(), "panic: ouch") {
		t.Error(err)
	}
}

func TestTimeoutReportsTheCondition(t *testing.T) {
	p := step("a")
	p.Timeout = time.Millisecond
	p.Run = func(ctx context.Context, _ *log, r workflow.Reporter) error {
		r.Waiting("the API server", "connection refused")
		<-ctx.Done()
		return ctx.Err()
	}
	_, _, _, err := run(t, workflow.Options{}, p)
	if finding.ExitStatus(err) != finding.ExitTimeout || !strings.Contains(err.Error(), "still waiting for the API server (connection refused)") {
		t.Error(err)
	}
}

func TestRollbackUndoesInReverse(t *testing.T) {
	undo := func(name string) func(context.Context, *log, workflow.Reporter) error {
		return func(_ context.Context, l *log, _ workflow.Reporter) error {
			l.add("undo " + name)
			return nil
		}
	}
	a, b, kept, bad, never := step("a"), step("b"), step("kept"), failing(step("bad"), errors.New("no")), step("never")
	kept.Check = func(context.Context, *log) (bool, error) { return true, nil }
	a.Undo, b.Undo, kept.Undo, bad.Undo, never.Undo = undo("a"), undo("b"), undo("kept"), undo("bad"), undo("never")
	phases := []phase{a, b, kept, bad, never}
	got, _, _, err := run(t, workflow.Options{OnFailure: workflow.Rollback}, phases...)
	if diff := cmp.Diff([]string{"a", "b", "undo bad", "undo b", "undo a"}, got); diff != "" || err == nil {
		t.Error(err, diff)
	}
	got, _, _, _ = run(t, workflow.Options{OnFailure: workflow.Rollback, Before: []string{"kept"}}, phases...)
	if diff := cmp.Diff([]string{"a", "b", "undo bad", "undo kept", "undo b", "undo a"}, got); diff != "" {
		t.Error("what the interrupted run did:", diff)
	}
	got, _, _, _ = run(t, workflow.Options{OnFailure: workflow.Keep}, phases...)
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

// UndoAll runs only once, and only if a phase ran that could be undone.
func TestRollbackOfTheWhole(t *testing.T) {
	undone := 0
	whole := workflow.Options{OnFailure: workflow.Rollback, UndoAll: func(context.Context) error {
		undone++
		return nil
	}}
	a, b, bad := step("a"), step("b"), failing(step("bad"), errors.New("no"))
	if got, _, _, err := run(t, whole, a, bad); undone != 0 || err == nil {
		t.Errorf("nothing could be undone: %q, undone %d times, %v", got, undone, err)
	}
	a.Undo = func(context.Context, *log, workflow.Reporter) error {
		return errors.New("a phase was undone by itself")
	}
	b.Undo = a.Undo
	if got, _, _, err := run(t, whole, a, b, bad); undone != 1 || err == nil || !strings.HasSuffix(err.Error(), "no") {
		t.Errorf("%q, undone %d times, %v", got, undone, err)
	}
	whole.OnFailure = workflow.Keep
	if _, _, _, err := run(t, whole, a, b, bad); undone != 1 || err == nil {
		t.Errorf("a run that keeps what it did was undone, %v", err)
	}
	whole.OnFailure, whole.UndoAll = workflow.Rollback, func(context.Context) error { return errors.New("it stays") }
	if _, _, _, err := run(t, whole, a, bad); err == nil || !strings.Contains(err.Error(), "rolling back: it stays") {
		t.Errorf("%v", err)
	}
}

func TestValidateReportsEveryMistake(t *testing.T) {
	err := workflow.Validate([]phase{
		step("a", "b"), step("b", "a"), step("c", "nowhere"), step("c"), step("Bad Name"), {Name: "empty", Short: "Do nothing"},
		{Name: "both", Short: "Do both", Run: step("x").Run, Phases: []phase{step("y")}}, {Name: "quiet", Run: step("x").Run},
	})
	for _, want := range []string{
		"phases wait for each other: a, b", `After names "nowhere"`, `"c": the name occurs twice`, "not kebab-case", "neither children nor Run",
		"children and its own work", `"quiet": Short`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if err := workflow.Validate([]phase{step("a"), step("b", "")}); err != nil {
		t.Error(err)
	}
}

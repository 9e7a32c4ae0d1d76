// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)

func aStory(start time.Time) []workflow.Event {
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	return []workflow.Event{
		{Time: at(0), Type: workflow.RunStarted, Count: 4},
		{Time: at(0), Type: workflow.PhaseStarted, Phase: "a", Message: "Do a", Count: 4},
		{Time: at(0), Type: workflow.PhaseProgress, Phase: "a", Done: 1 << 20, Total: 4 << 20, Unit: "B", Count: 4},
		{Time: at(1), Type: workflow.PhaseProgress, Phase: "a", Done: 2 << 20, Total: 4 << 20, Unit: "B", Count: 4},
		{Time: at(1), Type: workflow.PhaseOutput, Phase: "a", Message: "chatter", Count: 4},
		{Time: at(2), Type: workflow.PhaseProgress, Phase: "a", Done: 4 << 20, Total: 4 << 20, Unit: "B", Count: 4},
		{Time: at(2), Type: workflow.PhaseDone, Phase: "a", Duration: 2.04, Count: 4},
		{Time: at(2), Type: workflow.PhaseStarted, Phase: "b", Message: "Do b", Count: 4},
		{Time: at(3), Type: workflow.PhaseWaiting, Phase: "b", Message: "the API server", Why: "connection refused", Count: 4},
		{Time: at(4), Type: workflow.PhaseWaiting, Phase: "b", Message: "the API server", Why: "connection refused", Count: 4},
		{Time: at(9), Type: workflow.PhaseWaiting, Phase: "b", Message: "the API server", Why: "connection refused", Count: 4},
		{Time: at(9), Type: workflow.PhaseSkipped, Phase: "c", Message: "--skip-phases", Count: 4},
		{Time: at(9), Type: workflow.PhaseFailed, Phase: "b", Message: "no\nmore", Count: 4},
		{Time: at(9), Type: workflow.PhaseDone, Phase: "d", Unchanged: true, Count: 4},
		{Time: at(9), Type: workflow.RunFailed, Message: "no"},
	}
}

func TestLines(t *testing.T) {
	var b strings.Builder
	r := New(&b, Options{Color: true})
	for _, e := range aStory(time.Now()) {
		r.Event(e)
		if e.Type == workflow.PhaseProgress && e.Done == e.Total {
			r.Event(e) // complete progress is reported once
		}
	}
	r.Close()
	want := `[a] Do a
[a] 1.0 MiB of 4.0 MiB (25%)
[a] 4.0 MiB of 4.0 MiB (100%), 1.5 MiB/s
[a] done in 2.0s
[b] Do b
[b] waiting for the API server: connection refused
[b] waiting for the API server: connection refused
[c] skipped: --skip-phases
[b] failed: no
[d] already done
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// Alternating waits of one phase do not flood a log.
func TestLinesOfSeveralWaits(t *testing.T) {
	var b strings.Builder
	r := Lines(&b, Options{})
	start := time.Now()
	for i := range 30 {
		for _, what := range []string{"DNS", "storage"} {
			r.Event(workflow.Event{Time: start.Add(time.Duration(i) * 100 * time.Millisecond), Type: workflow.PhaseWaiting, Phase: "ready",
				Message: what, Why: fmt.Sprint(i)})
		}
	}
	want := "[ready] waiting for DNS: 0\n[ready] waiting for storage: 0\n[ready] waiting for DNS: 20\n[ready] waiting for storage: 20\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTerminalKeepsAStatusLine(t *testing.T) {
	var b strings.Builder
	term := &terminal{w: &b, width: func() int { return 60 }}
	start := time.Now()
	events := aStory(start)
	for _, e := range events[:4] {
		term.Event(e)
	}
	status := term.status(start.Add(time.Second))
	if !strings.HasPrefix(status, "0/4 a: ") || !strings.Contains(status, "50%") {
		t.Errorf("no bar: %q", status)
	}
	for _, e := range events[4:9] {
		term.Event(e)
	}
	if got, want := term.status(start.Add(8*time.Second)), "1/4 b: waiting for the API server: connection refused (5s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	term.width = func() int { return 20 }
	if got := term.status(start); len([]rune(got)) >= 20 {
		t.Errorf("%q is longer than the line", got)
	}
	text := term.running[0].text
	term.running[0].text = "等待数据库服务器响应的备份"
	if got, want := term.status(start), "1/4 b: 等待数据库…"; got != want { // each takes two columns
		t.Errorf("%q, want %q", got, want)
	}
	term.running[0].text = text
	for _, e := range events[9:] {
		term.Event(e)
	}
	for _, want := range []string{"✓ a (2.0s)\n", "- c: skipped, --skip-phases\n", "✗ b: no\n", "= d: already done\n"} {
		if !strings.Contains(b.String(), clearLine+want) && !strings.Contains(b.String(), "\n"+want) {
			t.Errorf("%q is missing in %q", want, b.String())
		}
	}
	if !strings.HasSuffix(b.String(), "= d: already done\n") {
		t.Errorf("the status line is left: %q", b.String())
	}
	if strings.Contains(b.String(), "\x1b[3") {
		t.Error("colours where none are wanted")
	}
}

// A command without phases also shows what it waits for, in one line.
func TestTerminalWithoutPhases(t *testing.T) {
	var b strings.Builder
	term := &terminal{w: &b, width: func() int { return 60 }}
	at := time.Now()
	term.Event(workflow.Event{Time: at, Type: workflow.PhaseWaiting, Phase: "cloud", Message: "operator", Why: "pod a\nrestarts"})
	if got, want := term.drawn, "cloud: waiting for operator: pod a restarts"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	term.Event(workflow.Event{Time: at, Type: workflow.PhaseProgress, Phase: "cloud", Done: 1, Total: 2})
	if !strings.Contains(term.drawn, "50%") {
		t.Errorf("no bar: %q", term.drawn)
	}
}

func TestFindings(t *testing.T) {
	var b strings.Builder
	err := fmt.Errorf("checking: %w", &workflow.PhaseError{Plan: "init", Phase: "preflight", Err: finding.List{
		{Code: "OCA-6012", Check: "MySQL", Severity: finding.Error, What: `MySQL refuses "root"`, Cause: "wrong password", Evidence: []string{"one", "two"}, Remedy: "a\nb"},
		{Code: "OCA-1008", Severity: finding.Warning, What: "Few processors"},
	}})
	Error(&b, "ocadm", err)
	want := `ocadm: OCA-6012: MySQL refuses "root"
  why:  wrong password
  seen: one
  seen: two
  next: a
        b
  or:   --ignore-preflight-errors=MySQL to ignore it
warning OCA-1008: Few processors
ocadm: init stopped in phase preflight
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	Error(&b, "ocadm", fmt.Errorf("doing: %w", &exec.Error{Argv: []string{"x"}, Output: "l1\nl2\n", Err: errors.New("exit status 1")}))
	if diff := cmp.Diff("ocadm: doing: running x: exit status 1: l2\n  | l1\n  | l2\n", b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestRedactor(t *testing.T) {
	var r Redactor
	var b strings.Builder
	r.Add(`pa"ss`, "abc", "token123", "a<&b")
	if _, err := r.Writer(&b).Write([]byte(`x pa"ss {"p":"pa\"ss"} abc token123 {"p":"a\u003c\u0026b"}`)); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), `x *** {"p":"***"} abc *** {"p":"***"}`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A secret may begin with another one.
func TestRedactorOfAPrefix(t *testing.T) {
	var r Redactor
	r.Add("S3cret", "S3cret-of-the-database")
	if got := r.Text("x S3cret-of-the-database y"); got != "x *** y" {
		t.Error(got)
	}
}

func TestConfirm(t *testing.T) {
	for in, want := range map[string]bool{"yes\n": true, "y\n": true, "Y": true, "no\n": false, "\n": false} {
		var out strings.Builder
		if got, err := Confirm(t.Context(), strings.NewReader(in), &out, "Sure?", "yes", "--yes"); got != want || err != nil {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if got, err := Confirm(t.Context(), strings.NewReader("yes\n"), &strings.Builder{}, "Name?", "default", "--force"); got || err != nil {
		t.Errorf("another word confirms: %v", err)
	}
	in := strings.NewReader("yes\nno\n") // several questions
	for _, want := range []bool{true, false} {
		if got, err := Confirm(t.Context(), in, io.Discard, "Sure?", "yes", "--yes"); got != want || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
	if _, err := Confirm(t.Context(), strings.NewReader(""), &strings.Builder{}, "Sure?", "yes", "--yes"); finding.ExitStatus(err) != finding.ExitUsage {
		t.Error(err)
	}
}

// An interrupt answers a question.
func TestConfirmEndsWithItsContext(t *testing.T) {
	in, w := io.Pipe() // nothing is written
	defer func() { _ = w.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := Confirm(ctx, in, io.Discard, "Sure?", "yes", "--yes"); ok || finding.ExitStatus(err) != finding.ExitInterrupted {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestFormatAndPrint(t *testing.T) {
	f := NewFormat("table", "json", "yaml")
	if err := f.Set("xml"); err == nil || !strings.Contains(err.Error(), "table, json, yaml") {
		t.Error(err)
	}
	var b strings.Builder
	for _, format := range []string{"json", "yaml", "jsonl", "table"} {
		if err := Print(&b, format, map[string]int{"a": 1}, func(io.Writer) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	if err := Table(&b, []string{"A", "LONG"}, [][]string{{"xyz", "1"}, {"北京", "2"}}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("{\n  \"a\": 1\n}\na: 1\n{\"a\":1}\nA      LONG\nxyz    1\n北京   2\n", b.String()); diff != "" {
		t.Error(diff)
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 20: "1.0 MiB", 3 << 30: "3.0 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

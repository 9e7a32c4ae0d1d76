// SPDX-License-Identifier: Apache-2.0

package workflow_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib", "journal.jsonl")
	j := workflow.NewJournal(path)
	j.Redact = func(s string) string { return strings.ReplaceAll(s, "s3cret", "***") }
	runWith := func(o workflow.Options, phases ...phase) {
		t.Helper()
		_, _ = workflow.Runner[*log]{Plan: "init", Phases: phases, Journal: j}.Run(t.Context(), &log{}, o)
	}
	if in, err := j.Resume("init"); in != nil || err != nil {
		t.Fatalf("%+v, %v", in, err)
	}
	runWith(workflow.Options{Inputs: map[string]string{"--node-ip": "10.0.0.1"}}, step("a"), failing(step("b"), errors.New("password s3cret refused")), step("c"))
	in, err := j.Resume("init")
	if err != nil || in == nil {
		t.Fatal(in, err)
	}
	if in.Phase != "b" || in.Error != "password *** refused" {
		t.Errorf("%+v", in)
	}
	if diff := cmp.Diff([]string{"a", "b"}, in.Did); diff != "" {
		t.Error(diff)
	}
	want := []string{"--node-ip: 10.0.0.1 → 10.0.0.2", "--region: (default) → r1"}
	if diff := cmp.Diff(want, in.Differences(map[string]string{"--node-ip": "10.0.0.2", "--region": "r1"})); diff != "" {
		t.Error(diff)
	}
	if other, err := j.Resume("join"); other != nil || err != nil {
		t.Errorf("another plan: %+v, %v", other, err)
	}
	runWith(workflow.Options{}, step("a"), step("b"))
	if in, err := j.Resume("init"); in != nil || err != nil {
		t.Errorf("after a good run: %+v, %v", in, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A crash at any byte of the journal leaves one that can still be read and appended to.
func TestTornJournal(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	j := workflow.NewJournal(whole)
	_, err := workflow.Runner[*log]{Plan: "init", Phases: []phase{step("a"), step("b")}, Journal: j}.Run(t.Context(), &log{}, workflow.Options{})
	require.NoError(t, err)
	raw, err := os.ReadFile(whole)
	require.NoError(t, err)
	for n := range raw {
		path := filepath.Join(dir, "torn")
		require.NoError(t, os.WriteFile(path, raw[:n], 0o600))
		torn := workflow.NewJournal(path)
		in, err := torn.Resume("init")
		first := strings.Index(string(raw), "\n")
		if unfinished := n > first; err != nil || (in != nil) != unfinished {
			t.Fatalf("%d bytes: %+v, %v", n, in, err)
		}
		require.NoError(t, torn.Append(t.Context(), workflow.Entry{Run: "x", Plan: "join", Event: "run-started"}))
		if in, err := torn.Resume("join"); err != nil || in == nil {
			t.Fatalf("%d bytes: the new line is lost: %+v, %v", n, in, err)
		}
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "ocadm.lock")
	unlock, err := workflow.Lock(path)
	require.NoError(t, err)
	_, err = workflow.Lock(path)
	l := finding.Of(err)
	if len(l) != 1 || l[0].Code != "OCA-1050" || !strings.Contains(l[0].Cause, "process ") || strings.Contains(l[0].Cause, "unknown") {
		t.Errorf("%+v, %v", l, err)
	}
	unlock()
	again, err := workflow.Lock(path)
	require.NoError(t, err)
	again()
}

func TestAwaitLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ocadm.lock")
	unlock, err := workflow.Lock(path)
	require.NoError(t, err)
	var causes []string
	again, err := workflow.AwaitLock(t.Context(), path, func(cause string) {
		causes = append(causes, cause)
		unlock()
	})
	if err != nil || len(causes) != 1 || !strings.Contains(causes[0], "process ") {
		t.Fatalf("%q, %v", causes, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err = workflow.AwaitLock(ctx, path, func(string) { cancel() }); len(finding.Of(err)) != 1 {
		t.Errorf("interrupted: %v", err)
	}
	again()
}

// A single phase that succeeds does not end the interrupted run of the whole plan.
func TestASinglePhaseIsNotTheWholePlan(t *testing.T) {
	j := workflow.NewJournal(filepath.Join(t.TempDir(), "journal"))
	add := func(run string, part bool, events ...workflow.EventType) {
		for _, event := range events {
			e := workflow.Entry{Run: run, Plan: "init", Event: string(event)}
			if event == workflow.RunStarted {
				e.Part, e.Inputs = part, map[string]string{"run": run}
			}
			if event != workflow.RunStarted && event != workflow.RunDone {
				e.Phase = "phase-" + run
			}
			require.NoError(t, j.Append(t.Context(), e))
		}
	}
	want := func(run string, did ...string) {
		t.Helper()
		in, err := j.Resume("init")
		if err != nil || (in == nil) != (run == "") || in != nil && (in.Inputs["run"] != run || !slices.Equal(in.Did, did)) {
			t.Errorf("%+v, %v", in, err)
		}
	}
	add("1", true, workflow.RunStarted, workflow.PhaseStarted, workflow.RunDone)
	want("")
	add("2", false, workflow.RunStarted, workflow.PhaseStarted, workflow.PhaseFailed)
	add("3", true, workflow.RunStarted, workflow.PhaseStarted, workflow.PhaseFailed)
	want("3", "phase-2", "phase-3")
	add("4", true, workflow.RunStarted, workflow.PhaseStarted, workflow.RunDone)
	want("2", "phase-2", "phase-3", "phase-4")
	add("5", false, workflow.RunStarted, workflow.PhaseStarted, workflow.RunDone)
	want("")
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// point is where a run is stopped: when it reports an event of a phase, and some time after that.
type point struct {
	event workflow.EventType
	phase string
	after time.Duration
	// late means that little of the command is left, so that it may end before the signal arrives.
	late bool
}

func (p point) String() string {
	if p.after > 0 {
		return fmt.Sprintf("%.1f s into %s", p.after.Seconds(), p.phase)
	}
	return fmt.Sprintf("%s of %s", strings.TrimPrefix(string(p.event), "phase-"), p.phase)
}

// A phase that takes at least inside is also stopped in its middle, but no later than deep: a run that continues after a kill is faster.
const (
	inside = 800 * time.Millisecond
	deep   = 1500 * time.Millisecond
)

// points returns the points before, after and within every phase of a run that reported these events, in the order of that run.
func points(events []workflow.Event) []point {
	took := map[string]float64{}
	for _, e := range events {
		if e.Type == workflow.PhaseDone {
			took[e.Phase] = e.Duration
		}
	}
	var out []point
	for _, e := range events {
		switch e.Type {
		case workflow.PhaseStarted:
			out = append(out, point{event: e.Type, phase: e.Phase})
			if d := time.Duration(took[e.Phase] * float64(time.Second)); d >= inside {
				out = append(out, point{event: e.Type, phase: e.Phase, after: min(d/2, deep)})
			}
		case workflow.PhaseDone:
			out = append(out, point{event: e.Type, phase: e.Phase})
		}
	}
	return out
}

// spread returns n of the points, including the first and the last; 0 means all.
func spread(all []point, n int) []point {
	if n <= 0 || n >= len(all) {
		return all
	}
	out := make([]point, n)
	for i := range out {
		out[i] = all[i*(len(all)-1)/max(n-1, 1)]
	}
	return out
}

// events runs a command that reports events on standard output, to its end.
func (s *suite) events(t *testing.T, node int, argv ...string) []workflow.Event {
	t.Helper()
	out, err := s.On(t.Context(), node, append(argv, "-o", "jsonl")...)
	require.NoError(t, err)
	var list []workflow.Event
	for line := range strings.Lines(out) {
		var e workflow.Event
		if json.Unmarshal([]byte(line), &e) == nil && e.Type != "" {
			list = append(list, e)
		}
	}
	if len(list) < 3 {
		t.Fatalf("%s reported no events: %s", quoted(argv), out)
	}
	return list
}

// stopAt runs a command with -o jsonl on a machine and sends it a signal when it reports the event. It reads the events on the machine, because every
// call from outside takes longer than many phases. A phase that the previous run completed may be skipped. $status is the exit status of the command
// for the code that follows.
const stopAt = `rm -f /run/events; mkfifo /run/events
%[1]s -o jsonl >/run/events 2>/run/story & pid=$!
exec 3</run/events
reached=no
while read -r line <&3; do
	case $line in *'"type":"%[2]s"'*'"phase":"%[3]s"'*|*'"type":"phase-skipped"'*'"phase":"%[3]s"'*) reached=yes; [ %.2[4]f = 0.00 ] || sleep %.2[4]f; kill -%[5]s $pid; break;; esac
done
cat <&3 >/run/events.rest & wait $pid; status=$?
%[6]s
if [ $reached = no ]; then echo "it never reached that point and ended with $status"; cat /run/story; exit 1; fi
exit 0`

// mayEnd reports whether a command may end before it is killed at a point: the signal may be late in the middle of a phase, and in or after the last one.
func (p point) mayEnd() bool { return p.late || p.after > 0 || p.event == workflow.PhaseDone }

// killedAt is stopAt with SIGKILL, after which nothing of the program runs. In the middle of a phase it may come too late.
func (s *suite) killedAt(t *testing.T, node int, p point, argv ...string) {
	t.Helper()
	killed := "[ $status = 137 ]"
	if p.mayEnd() {
		killed += " || [ $status = 0 ]"
	}
	script := fmt.Sprintf(stopAt, quoted(argv), p.event, p.phase, p.after.Seconds(), "KILL",
		`[ $reached = no ] || `+killed+` || { echo "it ended with $status"; cat /run/story; exit 2; }`)
	if out, err := s.quietly(t, node, "sh", "-c", script); err != nil {
		t.Fatalf("killed at %s: %v\n%s", p, err, out)
	}
}

// quietly runs a command without a line in the log.
func (s *suite) quietly(t *testing.T, node int, argv ...string) (string, error) {
	t.Helper()
	out, errOut, err := s.Lab.Node(node).Exec(t.Context(), argv...)
	return out + errOut, err
}

// kills kills a command at each point in turn; each run continues where the previous one was killed. It returns the time that took.
func (s *suite) kills(t *testing.T, node int, list []point, argv ...string) {
	t.Helper()
	begun := time.Now()
	for _, p := range list {
		s.killedAt(t, node, p, argv...)
		t.Logf("[%5.1f s] killed: %s", time.Since(begun).Seconds(), p)
	}
	t.Logf("%s was killed at %d points in %.1f s", argv[1], len(list), time.Since(begun).Seconds())
}

// atEntry sends a signal to a command when its journal has the entry. A step that the previous run did complete has only its end there.
const atEntry = `journal=/var/lib/ocadm/journal.jsonl; from=$(wc -l <$journal)
%[1]s >/run/story 2>&1 & pid=$!
until tail -n +$((from+1)) $journal | grep -qE '"phase":"%[3]s","event":"(%[2]s|phase-done)"'; do
	kill -0 $pid 2>/dev/null || { wait $pid; echo "it ended with $?"; cat /run/story; exit 1; }
done
kill -%[4]s $pid; wait $pid; status=$?; %[5]s || { echo "it ended with $status"; cat /run/story; exit 2; }`

// killedAtEntry kills a command at a journal entry. After its last step it may have ended.
func (s *suite) killedAtEntry(t *testing.T, node int, p point, argv ...string) {
	t.Helper()
	if late := s.killAtEntry(t, node, p, argv...); late != "" && !p.mayEnd() {
		t.Fatalf("it ended before it was killed at %s: %s", p, late)
	}
}

// killAtEntry kills a command at a journal entry. late is the output of a command that ended first, "" if it was killed: the last step may end before
// the shell sees its start.
func (s *suite) killAtEntry(t *testing.T, node int, p point, argv ...string) (late string) {
	t.Helper()
	out := s.stoppedAtEntry(t, node, p, "KILL", "[ $status = 137 ] || { [ $status = 0 ] && { echo late; cat /run/story; }; }", argv)
	if !strings.HasPrefix(out, "late") {
		return ""
	}
	return out
}

// interruptedAtEntry interrupts a command as interruptedAt does.
func (s *suite) interruptedAtEntry(t *testing.T, node int, p point, argv ...string) {
	t.Helper()
	s.stoppedAtEntry(t, node, p, twice, "[ $status != 0 ]", argv)
}

// twice sends two interrupts: the second one ends the running phases.
const twice = "TERM $pid; sleep 0.3; kill -TERM"

func (s *suite) stoppedAtEntry(t *testing.T, node int, p point, signal, ended string, argv []string) string {
	t.Helper()
	out, err := s.quietly(t, node, "sh", "-c", fmt.Sprintf(atEntry, quoted(argv), p.event, p.phase, signal, ended))
	if err != nil {
		t.Fatalf("stopped at %s: %v\n%s", p, err, out)
	}
	return out
}

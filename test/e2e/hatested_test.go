// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/ha"
)

// missedGoal is the exit status of "ocadm ha test" for a missed goal.
const missedGoal = 41

// haTested is the output of "ocadm ha test -o json".
type haTested struct {
	APIGoal     float64 `json:"apiGoalSeconds"`
	ConsoleGoal float64 `json:"consoleGoalSeconds"`
	Faults      []ha.Outcome
	Met         bool
}

// parseHATested parses the output.
func parseHATested(out string) (h haTested, err error) {
	err = json.Unmarshal([]byte(out), &h)
	return h, err
}

// Lines returns a line for each fault with the measurements and their goals. They fail no test, because a busy machine is slow.
func (h haTested) Lines() (lines []string) {
	for _, o := range h.Faults {
		console := "console not measured"
		if o.Console != nil {
			console = fmt.Sprintf("console %.1f s (goal %.0f)", *o.Console, h.ConsoleGoal)
		}
		lines = append(lines, fmt.Sprintf("%s on %s: API outage %.1f s (goal %.0f), %s, %d of %d writes lost (goal 0), healthy after %.1f s: goals %s",
			o.Fault, o.Node, o.API, h.APIGoal, console, o.Lost, o.Written, o.Whole, map[bool]string{true: "met", false: "MISSED"}[o.Met]))
	}
	return lines
}

// Wrong returns faults that no slow machine excuses: a lost acknowledged write, a fault that was not caused, and a verdict that contradicts the
// measurements. status is the exit status of the command.
func (h haTested) Wrong(status int) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	met, made := true, []string(nil)
	for _, o := range h.Faults {
		made = append(made, o.Fault)
		switch {
		case o.Written == 0:
			add("%s: no write was acknowledged, so none could be lost", o.Fault)
		case o.Lost > 0:
			add("%s: %d of %d acknowledged writes are gone", o.Fault, o.Lost, o.Written)
		}
		if o.Node == "" {
			add("%s: on no node", o.Fault)
		}
		meets := o.API <= h.APIGoal && (o.Console == nil || *o.Console <= h.ConsoleGoal) && o.Lost == 0
		if o.Met != meets {
			add("%s: the report says that its goals are met: %v", o.Fault, o.Met)
		}
		met = met && meets
	}
	if want := []string{"virtual-address", "api-server", "etcd", "node"}; !slices.Equal(made, want) {
		add("the faults were %q, want %q", made, want)
	}
	if h.APIGoal != ha.APIGoal.Seconds() || h.ConsoleGoal != ha.ConsoleGoal.Seconds() {
		add("the goals are %.0f s and %.0f s", h.APIGoal, h.ConsoleGoal)
	}
	want := map[bool]int{true: 0, false: missedGoal}[met]
	if h.Met != met || status != want {
		add("the report says that all goals are met: %v; exit status %d, want %d", h.Met, status, want)
	}
	return wrong
}

// TestHATested checks that a lost write, a fault that was not caused and a wrong verdict fail a test, and that a slow machine does not.
func TestHATested(t *testing.T) {
	const begin = `{"apiGoalSeconds":10,"consoleGoalSeconds":30,"met":`
	fault := func(name, more string) string {
		return `{"fault":"` + name + `","node":"node2","apiOutageSeconds":1,"acknowledgedWrites":70,"lostWrites":0,"met":true` + more + `}`
	}
	all := func(met, node string) string {
		return begin + met + `,"faults":[` + strings.Join([]string{fault("virtual-address", ""), fault("api-server", ""), fault("etcd", ""), node}, ",") + `]}`
	}
	for name, c := range map[string]struct {
		out    string
		status int
		wrong  string // "" if nothing is
	}{
		"well":                      {all("true", fault("node", "")), 0, ""},
		"slow":                      {all("false", fault("node", `,"apiOutageSeconds":12.5,"met":false`)), 41, ""},
		"a slow console":            {all("false", fault("node", `,"consoleOutageSeconds":31,"met":false`)), 41, ""},
		"slow, and ends well":       {all("false", fault("node", `,"apiOutageSeconds":12.5,"met":false`)), 0, "want 41"},
		"slow, and says met":        {all("true", fault("node", `,"apiOutageSeconds":12.5`)), 0, "its goals are met: true"},
		"well, and fails":           {all("true", fault("node", "")), 41, "want 0"},
		"another failure":           {all("true", fault("node", "")), 43, "exit status 43"},
		"a lost write":              {all("false", fault("node", `,"lostWrites":2,"met":false`)), 41, "2 of 70 acknowledged writes are gone"},
		"a lost write that is met":  {all("true", fault("node", `,"lostWrites":2`)), 0, "2 of 70"},
		"nothing was written":       {all("true", fault("node", `,"acknowledgedWrites":0`)), 0, "no write was acknowledged"},
		"a fault is missing":        {begin + `true,"faults":[` + fault("etcd", "") + `]}`, 0, "the faults were"},
		"another goal":              {strings.Replace(all("true", fault("node", "")), `:10,`, `:100,`, 1), 0, "the goals are 100 s"},
		"on no node":                {all("true", fault("node", `,"node":""`)), 0, "on no node"},
		"it ended before any fault": {begin + `true,"faults":null}`, 41, "the faults were"},
	} {
		h, err := parseHATested(c.out)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := strings.Join(h.Wrong(c.status), "; ")
		if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, want %q", name, got, c.wrong)
		}
		if lines := h.Lines(); len(lines) != len(h.Faults) || len(lines) > 3 && !strings.Contains(lines[3], "(goal 10") && !strings.Contains(lines[3], "(goal 100") {
			t.Errorf("%s: %q", name, lines)
		}
	}
}

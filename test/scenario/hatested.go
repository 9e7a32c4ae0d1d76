// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scenario

import (
	"encoding/json"
	"fmt"
	"slices"

	"yunion.io/x/ocadm/phases/ha"
)

// missedGoal is the exit status of "ocadm ha test" for a missed goal.
const missedGoal = 41

// HATested is the output of "ocadm ha test -o json".
type HATested struct {
	APIGoal     float64 `json:"apiGoalSeconds"`
	ConsoleGoal float64 `json:"consoleGoalSeconds"`
	Faults      []ha.Outcome
	Met         bool
}

// ParseHATested parses the output.
func ParseHATested(out string) (h HATested, err error) {
	err = json.Unmarshal([]byte(out), &h)
	return h, err
}

// Lines returns a line for each fault with the measurements and their goals. They fail no test, because a busy machine is slow.
func (h HATested) Lines() (lines []string) {
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
func (h HATested) Wrong(status int) (wrong []string) {
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

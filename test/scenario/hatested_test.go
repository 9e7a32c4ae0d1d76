// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scenario

import (
	"strings"
	"testing"
)

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
		h, err := ParseHATested(c.out)
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

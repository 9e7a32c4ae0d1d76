// SPDX-License-Identifier: Apache-2.0

// Package callin defines the progress report of a machine that joins unattended at boot. The machine writes it to a ConfigMap with its join token,
// and the operator reads it. The operator trusts nothing in it: Read bounds every value.
package callin

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// State is the progress of a join.
type State string

// The states. "" means that the machine has not reported yet.
const (
	Called  State = "called"
	Joining State = "joining"
	Joined  State = "joined"
	Failed  State = "failed"
)

// Tries is how often a machine tries to join after each boot.
const Tries = 10

// Report is the report of a machine.
type Report struct {
	State State
	// Try is the number of the attempt since boot, from 1.
	Try int
	// Phase is the current phase of ocadm join.
	Phase string
	// Exit is the exit status of a script that failed without a finding, Message the end of its output.
	Exit    int
	Message string
	// Findings explain why an attempt failed.
	Findings finding.List
}

// Last reports whether the machine will not try again by itself.
func (r Report) Last() bool { return r.Try >= Tries }

// The keys of the ConfigMap. Policy onecloud-machine-call-in allows no others.
const (
	keyState, keyTry, keyPhase      = "state", "try", "phase"
	keyExit, keyMessage, keyReasons = "exit", "message", "findings"
)

// The maximum length of values, in bytes, and the maximum number of findings.
const (
	maxText     = 1024
	maxReasons  = 8
	maxEncoded  = 16 << 10
	maxPhase    = 64
	maxExitCode = 255
)

func (r Report) Data() (map[string]string, error) {
	reasons := r.Findings.Errors()
	reasons = reasons[:min(len(reasons), maxReasons)]
	short := make(finding.List, len(reasons))
	for i, f := range reasons {
		short[i] = finding.Finding{Code: f.Code, Severity: f.Severity, What: Text(f.What), Cause: Text(f.Cause), Remedy: Text(f.Remedy)}
	}
	encoded, err := json.Marshal(short)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		keyState: string(r.State), keyTry: strconv.Itoa(r.Try), keyPhase: r.Phase, keyExit: strconv.Itoa(r.Exit), keyMessage: Text(r.Message), keyReasons: string(encoded),
	}, nil
}

var (
	code  = regexp.MustCompile(`^OCA-[0-9]{4}$`)
	phase = regexp.MustCompile(`^[a-z0-9/-]+$`)
	check = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
)

// Read parses the report in the data of a ConfigMap. It drops invalid values.
func Read(data map[string]string) Report {
	r := Report{Message: Text(data[keyMessage])}
	switch s := State(data[keyState]); s {
	case Called, Joining, Joined, Failed:
		r.State = s
	}
	r.Try = number(data[keyTry], Tries)
	r.Exit = number(data[keyExit], maxExitCode)
	if p := data[keyPhase]; len(p) <= maxPhase && phase.MatchString(p) {
		r.Phase = p
	}
	var found finding.List
	if raw := data[keyReasons]; len(raw) <= maxEncoded && json.Unmarshal([]byte(raw), &found) == nil {
		r.Findings = lists.Map(Bound(found, maxReasons), func(f finding.Finding) finding.Finding { return finding.New(f.Code, f.What, f.Cause, f.Remedy) })
	}
	return r
}

// Bound filters findings sent by a machine: it keeps those that ocadm can have produced, shortened to fit into a status, at most most of them, errors
// before warnings.
func Bound(sent finding.List, most int) finding.List {
	var out finding.List
	for _, f := range sent {
		if !code.MatchString(f.Code) {
			continue
		}
		one := finding.Finding{Code: f.Code, Severity: finding.Error, What: Text(f.What), Cause: Text(f.Cause), Remedy: Text(f.Remedy)}
		if f.Severity == finding.Warning {
			one.Severity = finding.Warning
		}
		if check.MatchString(f.Check) {
			one.Check = f.Check
		}
		one.Evidence = lists.Map(f.Evidence[:min(len(f.Evidence), maxReasons)], Text)
		out = append(out, one)
	}
	if len(out) > most {
		out = append(out.Errors(), out.Warnings()...)[:most]
	}
	return out
}

// number parses a number from 0 to most.
func number(s string, most int) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, most)
}

// Text removes control characters from a line and shortens it.
func Text(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

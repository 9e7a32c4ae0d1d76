// SPDX-License-Identifier: Apache-2.0

// Package callin is what a machine that boots by itself reports of its join. The machine writes it to a ConfigMap with its join token, and the
// operator reads it. The operator trusts nothing in it: Read bounds every value.
package callin

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"yunion.io/x/ocadm/internal/finding"
)

// State is how far the join is.
type State string

// The states. "" is a machine that has not called in.
const (
	Called  State = "called"
	Joining State = "joining"
	Joined  State = "joined"
	Failed  State = "failed"
)

// Tries is how often a machine tries to join after one boot.
const Tries = 10

// Report is what a machine says.
type Report struct {
	State State
	// Try is which try of this boot it is, from 1.
	Try int
	// Phase of ocadm join that runs.
	Phase string
	// Exit is the status of a script that failed without a finding, Message the end of what it printed.
	Exit    int
	Message string
	// Findings say why a try failed.
	Findings finding.List
}

// Last reports whether the machine does not try again by itself.
func (r Report) Last() bool { return r.Try >= Tries }

// The keys of the ConfigMap. Policy onecloud-machine-call-in allows no others.
const (
	keyState, keyTry, keyPhase      = "state", "try", "phase"
	keyExit, keyMessage, keyReasons = "exit", "message", "findings"
)

// The longest values, in bytes, and how many findings are kept.
const (
	maxText     = 1024
	maxReasons  = 8
	maxEncoded  = 16 << 10
	maxPhase    = 64
	maxExitCode = 255
)

// Data is a report as the data of the ConfigMap.
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

// Read is the report in the data of a ConfigMap. What cannot be is left out.
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
		for _, f := range Bound(found, maxReasons) {
			r.Findings = append(r.Findings, finding.New(f.Code, f.What, f.Cause, f.Remedy))
		}
	}
	return r
}

// Bound takes from findings that a machine sent what can be of ocadm, in texts that a status can hold: the first ones up to most, errors before warnings.
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
		for _, line := range f.Evidence[:min(len(f.Evidence), maxReasons)] {
			one.Evidence = append(one.Evidence, Text(line))
		}
		out = append(out, one)
	}
	if len(out) > most {
		out = append(out.Errors(), out.Warnings()...)[:most]
	}
	return out
}

// number is a value from 0 to most.
func number(s string, most int) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return min(n, most)
}

// Text is a line without control characters that is not too long.
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

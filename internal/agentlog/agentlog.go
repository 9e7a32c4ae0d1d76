// SPDX-License-Identifier: Apache-2.0

// Package agentlog explains the errors that the agents of a compute node log. It is pure: callers read the logs.
package agentlog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// Log holds the log lines of one container, or the events of one pod.
type Log struct {
	// Source is a readable description: "pod default-host-x7k2p, container host".
	Source string
	// Lines are in chronological order.
	Lines []string
}

// settled is what the host agent logs once it has registered, so earlier errors no longer matter. Unregistered begins a line about a failed attempt: the agent
// tries again every 30 seconds, and its pod stays ready.
const (
	settled      = "Host registration process success"
	Unregistered = "register failed"
)

// Explain returns a finding for each problem, sorted by code. A recurring line is one finding, with the count and the last occurrence as evidence.
// The list holds errors only for what stops an agent; the rest are warnings.
func Explain(logs []Log) finding.List {
	type seen struct {
		finding.Finding
		count  int
		source string
		line   string
	}
	found := map[string]*seen{}
	var order []string
	for _, l := range logs {
		for _, line := range Unsettled(l.Lines) {
			f, ok := explain(line)
			if !ok {
				continue
			}
			key := f.Code + f.What
			if found[key] == nil {
				found[key] = &seen{Finding: f}
				order = append(order, key)
			}
			s := found[key]
			s.count++
			s.source, s.line = l.Source, line
		}
	}
	var out finding.List
	for _, key := range order {
		s := found[key]
		s.Evidence = []string{fmt.Sprintf("%s (%s): %s", s.source, lists.Times(s.count), shorten(s.line))}
		out = append(out, s.Finding)
	}
	slices.SortStableFunc(out, func(a, b finding.Finding) int { return cmp.Compare(a.Code, b.Code) })
	return out
}

// Unsettled returns the lines after the last registration of the host agent; earlier errors are over.
func Unsettled(lines []string) []string {
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], settled) {
			return lines[i+1:]
		}
	}
	return lines
}

func explain(line string) (finding.Finding, bool) {
	for _, r := range rules {
		at := r.Match.FindStringSubmatchIndex(line)
		if at == nil {
			continue
		}
		fill := func(text string) string { return Printable(string(r.Match.ExpandString(nil, text, line, at))) }
		return finding.Finding{Code: r.Code, Severity: cmp.Or(r.Severity, finding.Error), What: fill(r.What), Cause: r.Cause, Remedy: fill(r.Remedy)}, true
	}
	return finding.Finding{}, false
}

// lineBytes limits how much of a line is shown: lines can hold whole responses.
const lineBytes = 300

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// Printable removes control sequences that a terminal would obey: the texts come from containers.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, escape.ReplaceAllString(s, ""))
}

func shorten(line string) string {
	line = strings.TrimSpace(Printable(line))
	if len(line) <= lineBytes {
		return line
	}
	return strings.ToValidUTF8(line[:lineBytes], "") + " …"
}

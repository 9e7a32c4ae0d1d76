// SPDX-License-Identifier: Apache-2.0

// Package agentlog knows what the lines mean that the agents of a compute node log when they cannot go on. It is pure: who reads the logs,
// and from where, is no business of it.
package agentlog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
)

// Log is what one container, or the events of one pod, have to say.
type Log struct {
	// Source names it for people: "pod default-host-x7k2p, container host".
	Source string
	// Lines are in the order in which they were written.
	Lines []string
}

// settled is what the host agent logs once it has registered: what went wrong before has been overcome.
const settled = "Host registration process success"

// Explain returns a finding for each thing that is wrong, in the order of the codes. A line that recurs is one finding, with the number of
// times and the last occurrence as evidence. It holds an error only for what stops an agent; the rest are warnings.
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
		for _, line := range unsettled(l.Lines) {
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
		s.Evidence = []string{fmt.Sprintf("%s (%s): %s", s.source, times(s.count), shorten(s.line))}
		out = append(out, s.Finding)
	}
	slices.SortStableFunc(out, func(a, b finding.Finding) int { return cmp.Compare(a.Code, b.Code) })
	return out
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func unsettled(lines []string) []string {
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], settled) {
			return lines[i+1:]
		}
	}
	return lines
}

// explain finds the first rule for a line.
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

// lineBytes is how much of a line is shown: the lines hold whole responses.
const lineBytes = 300

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// Printable takes out what a terminal would obey: the texts come from containers.
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

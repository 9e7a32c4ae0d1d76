// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
)

// node is a line of a tree, with the lines below it.
type node struct {
	text  string
	below []node
}

func leaf(text string) node { return node{text: text} }

// Tree draws the cloud: its overall facts, each unsettled component with what it waits for, and the names of the others. Degraded components come
// first. Components in the same state for the same reason share a line. now is used for the ages.
func (s Status) Tree(now time.Time) []string {
	root := node{text: s.headline(), below: lists.Map(s.facts(), leaf)}
	by := lists.Index(s.Components, func(c v1alpha1.ComponentStatus) (string, v1alpha1.ComponentStatus) { return c.Name, c })
	for _, alike := range s.unsettled() {
		first := alike[0]
		names := lists.Map(alike, func(c v1alpha1.ComponentStatus) string { return c.Name })
		n := node{text: strings.Join(lists.Some(names, namesShown), ", ") + ": " + condition(alike, now)}
		for _, name := range first.BlockedBy {
			blocker, known := by[name]
			if !known {
				n.below = append(n.below, node{text: name})
				continue
			}
			text := name + ": " + condition([]v1alpha1.ComponentStatus{blocker}, now)
			if len(blocker.BlockedBy) > 0 && evidence(blocker) == "" {
				text += ": " + Why(blocker)
			}
			n.below = append(n.below, node{text: text})
		}
		root.below = append(root.below, n)
	}
	for _, state := range []v1alpha1.State{v1alpha1.Available, v1alpha1.Idle} {
		names := lists.Pick(s.Components, func(c v1alpha1.ComponentStatus) (string, bool) { return c.Name, c.State == state && c.Settled() })
		if len(names) > 0 {
			root.below = append(root.below, node{text: string(state) + ": " + strings.Join(names, ", ")})
		}
	}
	return append([]string{root.text}, branches(root.below, "")...)
}

func branches(list []node, indent string) (lines []string) {
	for i, n := range list {
		branch, below := "├─ ", "│  "
		if i == len(list)-1 {
			branch, below = "└─ ", "   "
		}
		lines = append(lines, indent+branch+n.text)
		lines = append(lines, branches(n.below, indent+below)...)
	}
	return lines
}

// Changes returns the log lines for a change of a cloud: each component with a different state or reason. If before is empty, they describe the cloud
// and what it lacks.
func (s Status) Changes(before Status) []string {
	if before.Name == "" {
		return s.lines(false)
	}
	known := before.lines(true)
	return slices.DeleteFunc(s.lines(true), func(line string) bool { return slices.Contains(known, line) })
}

// lines omits ages, so that a line stays the same until the state changes.
func (s Status) lines(settled bool) []string {
	lines := append([]string{s.headline()}, s.facts()...)
	for _, c := range s.Components {
		if c.Settled() && !settled {
			continue
		}
		line := c.Name + ": " + health(c)
		if why := Why(c); why != "" && !c.Settled() {
			line += ": " + why
		}
		lines = append(lines, line)
	}
	return lines
}

// headline summarizes the health and progress of the cloud in one line.
func (s Status) headline() string {
	text := fmt.Sprintf("cloud %s/%s, version %s: %s, %s", s.Namespace, s.Name, cmp.Or(s.Version, "-"), s.Health(), s.Tally())
	if s.Message != "" && !s.counted {
		text += ": " + s.Message
	}
	return text
}

// facts returns the lines about the cloud as a whole.
func (s Status) facts() (list []string) {
	add := func(label, text string) {
		if text != "" {
			list = append(list, label+": "+text)
		}
	}
	add("not up to date", s.Unreachable)
	if !strings.Contains(s.Message, s.Blocked) { // the headline has it
		add("blocked", s.Blocked)
	}
	add("paused", s.Paused)
	add("fields ignored", s.Ignored)
	_, all := s.Counts()
	outdated := lists.Count(s.Components, func(c v1alpha1.ComponentStatus) bool { return c.Outdated })
	progress := ""
	switch moves := s.Running != "" && s.Running != s.Version; {
	case moves && outdated > 0:
		progress = fmt.Sprintf("from %s to %s, %d of %d components are outdated", s.Running, s.Version, outdated, all)
	case moves:
		progress = fmt.Sprintf("from %s to %s", s.Running, s.Version)
	case outdated > 0:
		progress = fmt.Sprintf("%d of %d components are outdated", outdated, all)
	}
	add("update", progress)
	add("operation", s.Operation)
	add("operation failed", s.UpdateFailed)
	add("nodes", s.NodesNotReady)
	add("not highly available", s.NotSpread)
	add("no proven backup", s.NotProven)
	add("certificates of nodes", s.NodeCertificates)
	add("certificates", s.Certificates.Message)
	add("update available", s.UpdateAvailable)
	return list
}

// urgency orders the states of unsettled components.
var urgency = []v1alpha1.State{v1alpha1.Degraded, v1alpha1.Provisioning, v1alpha1.Progressing, v1alpha1.Waiting, v1alpha1.Available}

// unsettled groups the unsettled components by state and reason.
func (s Status) unsettled() (groups [][]v1alpha1.ComponentStatus) {
	at := map[string]int{}
	for _, c := range s.Components {
		if c.Settled() {
			continue
		}
		key := fmt.Sprintf("%q %q %q", health(c), evidence(c), c.BlockedBy)
		i, there := at[key]
		if !there {
			i = len(groups)
			at[key], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	slices.SortStableFunc(groups, func(a, b []v1alpha1.ComponentStatus) int {
		return slices.Index(urgency, a[0].State) - slices.Index(urgency, b[0].State)
	})
	return groups
}

// namesShown is the number of components named in a line, so that their state fits on the screen.
const namesShown = 4

// condition formats the state that components share, how long the first has been in it, and the evidence.
func condition(alike []v1alpha1.ComponentStatus, now time.Time) string {
	c := alike[0]
	text := health(c)
	var since time.Time
	for _, c := range alike {
		if since.IsZero() || c.Since.Time.Before(since) {
			since = c.Since.Time
		}
	}
	if !since.IsZero() && !c.Outdated { // it has been Available since then, not outdated
		text += " for " + max(0, now.Sub(since)).Round(time.Second).String()
	}
	if why := evidence(c); why != "" {
		text += ": " + why
	}
	return text
}

// health returns the state, plus "outdated" for a component that still serves its old version.
func health(c v1alpha1.ComponentStatus) string {
	if c.Outdated {
		return string(c.State) + ", outdated"
	}
	return string(c.State)
}

// evidence explains why a component is not settled; "" if it only waits for the components in BlockedBy.
func evidence(c v1alpha1.ComponentStatus) string {
	if c.Settled() && c.State != v1alpha1.Disabled || len(c.BlockedBy) > 0 && strings.HasPrefix(c.Message, "waiting for "+strings.Join(c.BlockedBy, ", ")) {
		return ""
	}
	return cmp.Or(c.Message, c.Reason)
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// OperationTree draws an operation: state, plan, and each step with its time, progress and evidence. now determines the times of running steps.
func OperationTree(o *Operation, now time.Time) []string {
	root := node{text: operationHeadline(o)}
	if !o.Status.Start.IsZero() {
		end := now
		if !o.Status.End.IsZero() {
			end = o.Status.End.Time
		}
		root.text += " (" + end.Sub(o.Status.Start.Time).Round(time.Second).String() + ")"
	}
	root.below = lists.Map(o.Status.Plan, func(line string) node { return node{text: "plan: " + line} })
	for _, s := range o.Status.Steps {
		s.Message = brief(o, s.Message)
		root.below = append(root.below, node{text: stepLine(s, now), below: lists.Map(s.Evidence, leaf)})
	}
	for _, f := range o.Status.Findings {
		severity := "error"
		if f.Warning {
			severity = "warning"
		}
		n := node{text: fmt.Sprintf("%s %s: %s: %s", severity, f.Code, f.What, f.Cause)}
		if f.Remedy != "" {
			n.below = []node{{text: f.Remedy}}
		}
		root.below = append(root.below, n)
	}
	return append([]string{root.text}, branches(root.below, "")...)
}

func operationHeadline(o *Operation) string {
	text := fmt.Sprintf("%s %s of cloud %s/%s: %s", o.Spec.Action, o.Name, o.Namespace, o.Spec.Cloud, cmp.Or(string(o.Status.Phase), "created"))
	if o.Status.Message != "" && !o.Status.Phase.Active() || o.Status.Phase == v1alpha1.OperationPaused {
		text += ": " + brief(o, o.Status.Message)
	}
	return text
}

// brief names the errors in a message by their codes: whoever prints the message also prints the errors.
func brief(o *Operation, text string) string {
	for _, f := range o.Status.Findings {
		if f.Warning {
			continue
		}
		whole := finding.New(f.Code, f.What, f.Cause, f.Remedy).Error()
		text = strings.ReplaceAll(strings.ReplaceAll(text, f.Code+" "+whole, f.Code), whole, f.Code)
		text = strings.ReplaceAll(text, f.Code+"\n"+f.Code, f.Code)
	}
	return strings.ReplaceAll(text, "\nOCA-", ", OCA-")
}

// messageRunes is the maximum length of a message in a table.
const messageRunes = 80

// MessageLine returns the message of an operation for a table: one short line.
func MessageLine(o *Operation) string {
	line, _, more := strings.Cut(brief(o, o.Status.Message), "\n")
	if runes := []rune(line); len(runes) > messageRunes {
		line, more = string(runes[:messageRunes]), true
	}
	if more {
		line += " …"
	}
	return line
}

func stepLine(s v1alpha1.OperationStep, now time.Time) string {
	text := fmt.Sprintf("%s %s", mark(s.State), cmp.Or(s.Short, s.Name))
	if !s.Start.IsZero() && s.State != v1alpha1.StepSkipped {
		end := now
		if !s.End.IsZero() {
			end = s.End.Time
		}
		text += " (" + end.Sub(s.Start.Time).Round(time.Second).String() + ")"
	}
	if s.State == v1alpha1.StepRunning && s.Total > 0 {
		text += " " + bar(s.Done, s.Total) + " " + progress(s.Done, s.Total, s.Unit)
	}
	if s.Message != "" && s.State != v1alpha1.StepDone {
		text += ": " + s.Message
	}
	return text
}

// progress formats done of total, choosing the unit for bytes by the total.
func progress(done, total int64, unit string) string {
	if unit != "B" {
		return fmt.Sprintf("%d/%d %s", done, total, unit)
	}
	name, size := "KiB", 1<<10
	if total >= 10<<20 {
		name, size = "MiB", 1<<20
	}
	if total >= 10<<30 {
		name, size = "GiB", 1<<30
	}
	return fmt.Sprintf("%.1f/%.1f %s", float64(done)/float64(size), float64(total)/float64(size), name)
}

func mark(s v1alpha1.StepState) string {
	if m, ok := map[v1alpha1.StepState]string{
		v1alpha1.StepDone: "✓", v1alpha1.StepUnchanged: "✓", v1alpha1.StepSkipped: "-", v1alpha1.StepFailed: "✗", v1alpha1.StepRunning: "▸",
	}[s]; ok {
		return m
	}
	return "·"
}

// barWidth is the width of a progress bar, in characters.
const barWidth = 20

func bar(done, total int64) string {
	n := int(min(done, total) * barWidth / total)
	return "[" + strings.Repeat("=", n) + strings.Repeat(" ", barWidth-n) + "]"
}

// OperationChanges returns the log lines for a change of an operation; before is nil at first.
func OperationChanges(before, after *Operation) []string {
	var out []string
	was := map[string]v1alpha1.OperationStep{}
	phase := v1alpha1.OperationPhase("")
	if before != nil {
		phase = before.Status.Phase
		was = lists.Index(before.Status.Steps, func(s v1alpha1.OperationStep) (string, v1alpha1.OperationStep) { return s.Name, s })
	}
	if after.Status.Phase != phase {
		out = append(out, operationHeadline(after))
	}
	for _, s := range after.Status.Steps {
		old := was[s.Name]
		s.Message, old.Message = brief(after, s.Message), brief(after, old.Message)
		more := s.Evidence[min(len(old.Evidence), len(s.Evidence)):]
		out = append(out, lists.Map(more, func(line string) string { return s.Name + ": " + line })...)
		switch {
		case s.State == old.State && s.Message == old.Message, s.State == v1alpha1.StepPending:
		case s.State == v1alpha1.StepRunning && s.Message != "":
			out = append(out, s.Name+": "+s.Message)
		default:
			line := s.Name + ": " + strings.ToLower(string(s.State))
			if s.Message != "" {
				line += ": " + s.Message
			}
			out = append(out, line)
		}
	}
	return out
}

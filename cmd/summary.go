// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
)

const (
	// shownTime is the minimum duration in the table of times.
	shownTime = 50 * time.Millisecond
	// shownChanges is the maximum number of changes in the summary.
	shownChanges = 60
)

// summary prints what a successful run changed, and how long each phase took.
func (a *app) summary(f runFlags, res workflow.Result) {
	if f.quiet || f.output.String() != "text" {
		return
	}
	counts := map[workflow.State]int{}
	var changes []string
	var times [][]string
	for _, s := range res.Steps {
		counts[s.State]++
		if f.run.DryRun {
			continue
		}
		changes = append(changes, s.Changes...)
		if s.Duration >= shownTime {
			times = append(times, []string{"  " + s.Name, ui.Seconds(s.Duration)})
		}
	}
	say := func(format string, args ...any) { fmt.Fprintf(a.Err, format+"\n", args...) }
	if f.run.DryRun {
		say("\nNothing was changed. %s would run, %d already done, %d not applicable.",
			lists.Counted(counts[workflow.Planned], "phase"), counts[workflow.Unchanged], counts[workflow.Skipped])
		return
	}
	if len(changes) > 0 {
		shown := lists.Some(changes, shownChanges)
		if len(shown) < len(changes) {
			shown[len(shown)-1] += ", see " + a.logFile
		}
		say("\nChanged:\n  %s", strings.Join(shown, "\n  "))
	}
	if len(times) > 0 {
		say("\nTime of each phase (some overlap):")
		_ = ui.Table(a.Err, nil, times) // only the display failed
	}
	say("\nDone in %s: %s ran, %d already done, %d not applicable.", ui.Seconds(res.Duration),
		lists.Counted(counts[workflow.Done], "phase"), counts[workflow.Unchanged], counts[workflow.Skipped])
}

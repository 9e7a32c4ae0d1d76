// SPDX-License-Identifier: Apache-2.0

package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
)

// patient returns a phase with a patience of a minute that reports every 40 seconds for half an hour.
func patient(report func(r workflow.Reporter, n int)) phase {
	return phase{Name: "wait", Short: "Wait", Patience: time.Minute, Run: func(ctx context.Context, _ *log, r workflow.Reporter) error {
		for n := range 45 {
			report(r, n)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(40 * time.Second):
			}
		}
		return nil
	}}
}

func TestPatience(t *testing.T) {
	state := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		report func(r workflow.Reporter, n int)
		ends   bool
	}{
		"pods change state":         {report: func(r workflow.Reporter, n int) { r.Waiting("pod", "container "+state(n)) }},
		"bytes arrive":              {report: func(r workflow.Reporter, n int) { r.Progress(int64(n), 0, "B") }},
		"an image is being pulled":  {report: func(r workflow.Reporter, _ int) { r.Alive() }},
		"each line is another":      {report: func(r workflow.Reporter, n int) { r.Output(state(n)) }},
		"nothing is reported":       {report: func(workflow.Reporter, int) {}, ends: true},
		"the same is reported":      {report: func(r workflow.Reporter, _ int) { r.Waiting("pod", "starting") }, ends: true},
		"a count goes up and down":  {report: func(r workflow.Reporter, n int) { r.Progress(int64(n%2), 3, "ready") }, ends: true},
		"a container keeps failing": {report: func(r workflow.Reporter, n int) { r.Waiting("pod", fmt.Sprintf("restarted %d times", n)) }, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, _, err := run(t, workflow.Options{}, patient(c.report))
				if errors.Is(err, context.DeadlineExceeded) != c.ends {
					t.Errorf("err = %v", err)
				}
			})
		})
	}
}

func TestTimeoutReportsConditionAndDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ev, _, err := run(t, workflow.Options{}, patient(func(r workflow.Reporter, _ int) {
			r.Waiting("database", "starting")
			r.Waiting("database", "")
			r.Waiting("DNS", "2 of 3 pods are ready")
		}))
		for _, part := range []string{"1m0s without progress", "still waiting for DNS (2 of 3 pods are ready)"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error is %v, it should contain %q", err, part)
			}
		}
		old := 0
		for _, e := range ev.list {
			if e.Type == workflow.PhaseWaiting && e.Message == "DNS" && e.Duration >= 30 {
				old++
			}
			if e.Type == workflow.PhaseWaiting && e.Message == "database" && e.Duration >= 30 {
				t.Error("the database is waited for although it was there")
			}
		}
		if old == 0 {
			t.Error("nothing reported how long DNS was waited for")
		}
	})
}

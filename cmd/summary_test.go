// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
)

func TestSummaryCountsPhases(t *testing.T) {
	var out bytes.Buffer
	a := newApp(Streams{Err: &out})
	f := runFlags{output: ui.NewFormat("text")}
	a.summary(f, workflow.Result{Steps: []workflow.StepResult{{State: workflow.Done}}})
	f.run.DryRun = true
	a.summary(f, workflow.Result{Steps: []workflow.StepResult{{State: workflow.Done}, {State: workflow.Planned}, {State: workflow.Unchanged}}})
	for _, want := range []string{": 1 phase ran, 0 already done, 0 not applicable.", " 1 phase would run, 1 already done, 0 not applicable."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in %s", want, out.String())
		}
	}
}

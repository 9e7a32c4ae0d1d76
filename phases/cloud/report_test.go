// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"slices"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/workflow"
)

type heard struct {
	workflow.Reporter
	lines []string
}

func (h *heard) Info(format string, args ...any) {
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}
func (h *heard) Progress(done, total int64, unit string) {
	h.lines = append(h.lines, fmt.Sprintf("%d of %d %s", done, total, unit))
}

func (h *heard) Waiting(what, why string) {
	if why != "" {
		h.lines = append(h.lines, what+": "+why)
	}
}

// A user who changes one component sees that one, not the components that were available before.
func TestReportOfAChange(t *testing.T) {
	status := func(state v1alpha1.State, message string, ready bool) cluster.Status {
		s := cluster.Status{Ready: ready, Message: "the operator has not seen the latest change yet", Components: []v1alpha1.ComponentStatus{
			{Name: "keystone", State: v1alpha1.Available}, {Name: "region", State: state, Message: message}, {Name: "lbagent", State: v1alpha1.Idle},
		}}
		return s
	}
	h := &heard{}
	report := Report(h)
	report(status(v1alpha1.Available, "", false))
	report(status(v1alpha1.Progressing, "0 of 1 pods ready", false))
	silent := status(v1alpha1.Progressing, "0 of 1 pods ready", false)
	silent.Unreachable = "connection refused"
	report(silent)
	report(status(v1alpha1.Available, "", true))
	want := []string{"cloud: the operator has not seen the latest change yet", "region: Progressing: 0 of 1 pods ready", "1 of 2 components",
		"cloud: connection refused",
		"region is available", "2 of 2 components"}
	if !slices.Equal(h.lines, want) {
		t.Errorf("%q", h.lines)
	}
}

// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"testing"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

func TestPlansAreValid(t *testing.T) {
	before := []host.Phase{
		{Name: "preflight", Short: "Check", Run: func(context.Context, *host.Host, workflow.Reporter) error { return nil }},
		{Name: "node", Short: "Install", Run: func(context.Context, *host.Host, workflow.Reporter) error { return nil }},
	}
	for name, plan := range map[string][]host.Phase{
		"init":            InitPhases(Order{}),
		"init overlapped": append(before, InitPhases(Order{Software: []string{"node"}})...),
		"join":            JoinPhases(),
		"join overlapped": append(before, JoinPhases("node")...),
		"reset":           ResetPhases(),
	} {
		if err := workflow.Validate(plan); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

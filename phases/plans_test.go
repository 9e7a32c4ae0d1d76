// SPDX-License-Identifier: Apache-2.0

package phases_test

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/host"
)

func TestPlansAreSound(t *testing.T) {
	for name, plan := range map[string][]host.Phase{"init": phases.Init(), "join": phases.Join(), "reset": phases.Reset()} {
		if err := workflow.Validate(plan); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range workflow.Table(plan) {
			if len(r.Short) > 90 || r.Short != strings.ToUpper(r.Short[:1])+r.Short[1:] {
				t.Errorf("%s %s: Short is %q", name, r.Name, r.Short)
			}
		}
	}
}

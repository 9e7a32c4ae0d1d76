// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/workflow"
)

// check looks whether an update could begin, and changes nothing.
func check() Action {
	return Action{
		Name: v1alpha1.ActionCheck, Short: "Run the checks of an update, and change nothing", Timeout: 10 * time.Minute,
		Steps: []Step{checks()},
	}
}

// checks is the step in which all checks run and report together.
func checks() Step {
	return Step{
		Name: "check", Short: "Check that the cloud can be updated", ReadOnly: true,
		Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
			list := findingsOf(ctx, r)
			if err := r.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Findings = findings(list) }); err != nil {
				return err
			}
			for _, f := range list.Warnings() {
				report.Info("%s %s", f.Code, f.Error())
			}
			return list.Err()
		},
	}
}

// checkRollback looks whether the release to go back to is kept. The cloud need not be well: that may be why it goes back.
func checkRollback() Step {
	return Step{
		Name: "check", Short: "Check that the release is kept", ReadOnly: true,
		Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
			cloud, err := r.Cloud(ctx)
			if err != nil {
				return err
			}
			to, err := target(ctx, r, cloud)
			if err != nil {
				return err
			}
			plan := fmt.Sprintf("release %d, version %s → the contents of release %d, version %s", cloud.Status.Release.Revision,
				cloud.Status.Release.Version, to.Revision, to.Version)
			report.Info("%s", plan)
			return r.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Plan = []string{plan} })
		},
	}
}

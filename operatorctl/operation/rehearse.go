// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/reconcile"
)

// Means holds what the steps of an action work with.
type Means struct {
	// Client writes, and reads from the cache; Direct bypasses the cache.
	Client client.Client
	Direct client.Reader
	// Connections sets how databases and services are reached.
	Connections effects.Options
	// Probes check the components of a wave.
	Probes []Probe
	// Preview returns what this build would make of a cloud.
	Preview func(context.Context, *v1alpha1.OnecloudCluster) (reconcile.Preview, error)
	// Pods creates, reads and watches pods, which no cache holds.
	Pods client.WithWatch
}

// rehearse runs the migrations of the next release on copies of the databases. Both steps are read-only: what they create is apart from the cloud, and
// gone when they end.
func rehearse() Action {
	return Action{
		Name: v1alpha1.ActionRehearse, Timeout: 4 * time.Hour,
		Steps: []Step{checkRehearsal(), {
			Name: "rehearse", Short: "Copy the databases and migrate the copies", ReadOnly: true, Timeout: databasesTimeout, Run: migrateCopies,
		}},
		Clean: cleanRehearsal,
	}
}

// checkRehearsal judges the update to the release. The cloud need not be healthy: only its databases are read.
func checkRehearsal() Step {
	return Step{
		Name: "check", Short: "Check the update path to the release", ReadOnly: true,
		Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
			cloud, err := r.Cloud(ctx)
			if err != nil {
				return err
			}
			return r.found(ctx, report, way(facts{cloud: cloud, update: r.Operation.Spec.Update, now: time.Now()}))
		},
	}
}

// preview returns what an update with the parameters of this operation would make of the cloud. The change is only a dry run.
func preview(ctx context.Context, r *Run) (*v1alpha1.OnecloudCluster, reconcile.Preview, error) {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return nil, reconcile.Preview{}, err
	}
	patch, _, _, err := updatePatch(ctx, r, cloud)
	if err != nil {
		return nil, reconcile.Preview{}, err
	}
	meta, _ := patch["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[v1alpha1.AnnotationUpdateFrom] = strconv.Itoa(cloud.Status.Release.Revision)
	patch["metadata"] = map[string]any{"annotations": annotations}
	trial := cloud.DeepCopy()
	if err := kube.Merge(ctx, r.Client, trial, v1alpha1.ManagerOperator, patch, client.DryRunAll); err != nil {
		return nil, reconcile.Preview{}, fmt.Errorf("changing the cloud in a dry run: %w", err)
	}
	view, err := r.Preview(ctx, trial)
	return cloud, view, err
}

// conclude returns the result of a rehearsal: nil, or a finding that names each failed migration. It is pure.
func conclude(list []v1alpha1.Rehearsed) error {
	var failed, lines []string
	for _, one := range list {
		if one.Result == v1alpha1.RehearsalFailed {
			failed = append(failed, one.Component)
			lines = append(lines, one.Component+": "+one.Message)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return finding.New("OCA-7090", "Migrations fail: the update would not succeed", strings.Join(lines, "; "),
		"ocadm operation list shows the rehearsal; do not update to this release before the cause is corrected").With(lines...)
}

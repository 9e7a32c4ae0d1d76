// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/status"
)

// check checks whether an update or a rollback could begin, and changes nothing. Findings do not stop it from checking the images, so that one run reports
// everything to repair. The operation itself ends at the first step that fails, because pulling would be pointless.
func check() Action {
	looks, pulls := checks(), pull(pullRendered, remedyUpdate)
	back, pullsBack := checkRollback(), pull(pullKept, remedyRollback)
	looks.Run, pulls.Run = reportsAll(either(looks.Run, back.Run)), withEarlier(either(pulls.Run, pullsBack.Run))
	return Action{Name: v1alpha1.ActionCheck, Timeout: moveTimeout, Clean: cleanPull,
		Steps: []Step{looks, pulls}}
}

type runStep = func(context.Context, *Run, workflow.Reporter) error

// either runs the step of an update, or that of a rollback if one is checked.
func either(update, rollback runStep) runStep {
	return func(ctx context.Context, r *Run, report workflow.Reporter) error {
		if r.Operation.Spec.Rollback != nil {
			return rollback(ctx, r, report)
		}
		return update(ctx, r, report)
	}
}

// reportsAll reports the findings of the first step and continues, unless there is no release whose images could be pulled.
func reportsAll(look runStep) runStep {
	return func(ctx context.Context, r *Run, report workflow.Reporter) error {
		err := look(ctx, r, report)
		list := finding.Of(err)
		wrongWay := func(f finding.Finding) bool {
			return slices.Contains([]string{codeUnknown, codeSkipped, codeBack}, f.Code)
		}
		if len(list) == 0 || r.Operation.Spec.Update == nil && r.Status().Target == nil || slices.ContainsFunc(list, wrongWay) {
			return err
		}
		for _, f := range list {
			report.Changed("%s %s", f.Code, f.Error())
		}
		return nil
	}
}

// withEarlier adds the findings of the first step to those of the second.
func withEarlier(find runStep) runStep {
	return func(ctx context.Context, r *Run, report workflow.Reporter) error {
		earlier := ErrorsIn(r.Status().Findings)
		err := find(ctx, r, report)
		if more := finding.Of(err); len(earlier) > 0 && (err == nil || len(more) > 0) {
			return append(earlier, more...).Err()
		}
		return err
	}
}

// ErrorsIn returns the errors among the findings of a status.
func ErrorsIn(l []v1alpha1.OperationFinding) finding.List {
	return lists.Pick(l, func(f v1alpha1.OperationFinding) (finding.Finding, bool) {
		return finding.New(f.Code, f.What, f.Cause, f.Remedy), !f.Warning
	})
}

// checksTimeout bounds the checks of an update: the wait of whenCalm, and what they read.
const checksTimeout = 20 * time.Minute

// checks returns the step in which all checks run and report together.
func checks() Step {
	return Step{
		Name: "check", Short: "Check that the cloud can be updated", ReadOnly: true, Timeout: checksTimeout,
		Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
			return r.found(ctx, report, findingsOf(ctx, r))
		},
	}
}

// found records the findings of a check and reports the warnings. It returns the errors among them.
func (r *Run) found(ctx context.Context, report workflow.Reporter, list finding.List) error {
	for _, f := range list.Warnings() {
		report.Info("%s %s", f.Code, f.Error())
	}
	if err := r.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Findings = Findings(list) }); err != nil {
		return err
	}
	return list.Err()
}

// whenCalm waits at most calmWithin times Settle, or calmAtLeast if that is longer.
const (
	calmWithin  = 10
	calmAtLeast = 15 * time.Second
)

// whenCalm runs a step after the reconciler has finished what needs no operation: one edit may change spec.version and more. What is not finished in time
// is left to the step.
func whenCalm(s Step) Step {
	run := s.Run
	s.Run = func(ctx context.Context, r *Run, report workflow.Reporter) error {
		waiting, stop := context.WithTimeout(ctx, max(calmWithin*r.Settle, calmAtLeast))
		defer stop()
		err := r.Until(waiting, report, "components in progress", func(cloud *v1alpha1.OnecloudCluster) (bool, string, error) {
			why := onTheWay(cloud, r.forbearance(time.Now()))
			return why == "", why, nil
		})
		if err != nil && (waiting.Err() == nil || ctx.Err() != nil) {
			return err
		}
		return run(ctx, r, report)
	}
	return s
}

// onTheWay returns what the reconciler still works on, or "": also if the cloud is paused or blocked, or a component was Degraded for as long as a wave
// must serve. It is pure.
func onTheWay(cloud *v1alpha1.OnecloudCluster, f forbearance) (what string) {
	all, some := v1alpha1.Paused(cloud.Annotations[v1alpha1.AnnotationPaused])
	degraded := meta.FindStatusCondition(cloud.Status.Conditions, v1alpha1.ConditionDegraded)
	switch {
	case all, len(some) > 0, degraded != nil && degraded.Reason == status.ReasonBlocked:
		return ""
	case cloud.Status.ObservedGeneration != cloud.Generation:
		return "the operator has not reconciled the cloud yet"
	}
	for _, c := range cloud.Status.Components {
		switch {
		case c.State == v1alpha1.Degraded && f.over(c.Since.Time):
			return ""
		case !c.State.Settled() && what == "":
			what = fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message)
		}
	}
	return what
}

// checkRollback checks that the release to go back to is kept. The cloud need not be healthy: that may be the reason for the rollback. To find out what
// was written since, it reads every row of the databases that changed.
func checkRollback() Step {
	return Step{
		Name: "check", Short: "Check that the release is kept", ReadOnly: true, Timeout: databasesTimeout,
		Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
			var f facts
			if err := f.read(ctx, r); err != nil {
				return err
			}
			cloud := f.cloud
			revision, passed, err := choose(ctx, r.Client, r.Operation.Spec.Rollback, cloud)
			if err != nil {
				return err
			}
			to, err := kept(ctx, r.Client, cloud, revision)
			if err != nil {
				return err
			}
			patch, _, err := patchTo(cloud, to)
			if err != nil {
				return err
			}
			plan := planOf(cloud, to, passed, patch)
			report.Info("%s", strings.Join(plan, "; "))
			lines, list := migratedSince(ctx, r, cloud, to)
			f.server, f.images = serverOf(ctx, r, cloud, savedSet(to.Revision)), to.Version != cloud.Status.Release.Version
			list = slices.Concat(list, unpaused(f), cordoned(f), space(f))
			r.Note(func(s *v1alpha1.OnecloudOperationStatus) {
				s.Target = &v1alpha1.RollbackTarget{Revision: to.Revision, Version: to.Version}
				s.Plan = append(plan, lists.Some(lines, maxLines)...)
			})
			return r.found(ctx, report, list)
		},
	}
}

// keepOrRestore is the remedy if there are no copies of the databases.
const keepOrRestore = "ocadm cluster backup restore FILE; or, to keep the current databases: ocadm cluster rollback --keep-databases"

// migratedSince checks which databases have changed since the cloud left a release, and whether the user has decided what to do about them. lines
// describes what the cloud loses if they are restored.
func migratedSince(ctx context.Context, r *Run, cloud *v1alpha1.OnecloudCluster, to *release.Release) (lines []string, out finding.List) {
	p := cmp.Or(r.Operation.Spec.Rollback, &v1alpha1.RollbackParameters{})
	remedy := fmt.Sprintf("ocadm cluster rollback --to %d --restore-databases: the cloud loses what was written since, which is saved in databases ocadm_saved_…; "+
		"or, to leave the databases as they are: --keep-databases", to.Revision)
	if p.KeepDatabases {
		return nil, nil
	}
	v, there, err := r.openVault(ctx, cloud)
	if !there && err == nil {
		return nil, nil
	}
	fail := func(err error) finding.List {
		return finding.List{finding.Errorf("OCA-7063", "The databases cannot be copied", "ocadm explain OCA-7063", "%w", err)}
	}
	if err != nil {
		return nil, fail(err)
	}
	defer v.Admin.Close()
	saved, there, err := v.Read(ctx, savedSet(to.Revision))
	switch {
	case err != nil:
		return nil, fail(err)
	case !there && p.RestoreDatabases:
		one := finding.New("OCA-7067", "There are no copies of the databases of that release",
			fmt.Sprintf("the copies for release %d were not created, or a later update replaced them", to.Revision),
			keepOrRestore)
		for _, twin := range twins(ctx, r.Client, cloud, to.Revision) {
			if other, there, err := v.Read(ctx, savedSet(twin)); there && err == nil {
				one.Cause = fmt.Sprintf("the copies for release %d no longer exist; there are copies for release %d, which has the same contents, from %s",
					to.Revision, twin, other.Time.Format(time.RFC3339))
				one.Remedy = fmt.Sprintf("ocadm cluster rollback --to %d --restore-databases", twin)
				break
			}
		}
		return nil, finding.List{one}
	case !there && changesTables(cloud.Status.Release.Version, to.Version):
		return nil, finding.List{finding.New("OCA-7066", "The databases were changed since that release", fmt.Sprintf("from %s to %s, and no copies of them exist",
			to.Version, cloud.Status.Release.Version), keepOrRestore)}
	case !there:
		return nil, nil
	}
	changed, err := v.Changed(ctx, saved)
	if err != nil {
		return nil, fail(err)
	}
	if len(changed) == 0 {
		return nil, nil
	}
	since, err := v.Since(ctx, saved, changed)
	if err != nil {
		return nil, fail(err)
	}
	lines = append(lines, fmt.Sprintf("databases %s as of %s; the cloud loses the following, which is saved separately:",
		strings.Join(changed, ", "), saved.Time.Format(time.RFC3339)))
	lines = append(lines, since...)
	if !p.RestoreDatabases {
		return lines, finding.List{finding.New("OCA-7066", "The databases were changed since that release",
			"tables of "+strings.Join(changed, ", ")+" have different definitions", remedy).With(lines...)}
	}
	return lines, nil
}

// twins returns the other releases with the same contents as one, latest first. Reverted updates leave such releases. Unreadable ones are omitted.
func twins(ctx context.Context, c client.Reader, cloud *v1alpha1.OnecloudCluster, revision int) []int {
	var list corev1.SecretList
	if c.List(ctx, &list, client.InNamespace(cloud.Namespace), client.HasLabels{v1alpha1.LabelRelease}) != nil {
		return nil
	}
	all, _ := release.Summaries(list.Items, cloud.Name)
	return release.Twins(all, revision)
}

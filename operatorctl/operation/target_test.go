// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

func TestTargetOf(t *testing.T) {
	asked := &v1alpha1.RollbackParameters{Revision: 2}
	noted := &v1alpha1.RollbackTarget{Revision: 3}
	for _, c := range []struct {
		name  string
		asked *v1alpha1.RollbackParameters
		now   v1alpha1.OnecloudOperationStatus
		want  int
	}{
		{"nothing is noted", nil, v1alpha1.OnecloudOperationStatus{}, 0},
		{"noted", nil, v1alpha1.OnecloudOperationStatus{Target: noted}, 3},
		{"noted, and releases were made since", nil, v1alpha1.OnecloudOperationStatus{Target: noted, Rollout: &v1alpha1.Rollout{From: 7}}, 3},
		{"reverting", nil, v1alpha1.OnecloudOperationStatus{Target: noted, Rollout: &v1alpha1.Rollout{From: 7, Of: 7}}, 3},
		{"asked for, checked by an earlier operator", asked, v1alpha1.OnecloudOperationStatus{Rollout: &v1alpha1.Rollout{From: 7}}, 2},
		{"moved by an earlier operator", nil, v1alpha1.OnecloudOperationStatus{Rollout: &v1alpha1.Rollout{From: 7, Of: 6}}, 6},
		{"checked by an earlier operator", nil, v1alpha1.OnecloudOperationStatus{Rollout: &v1alpha1.Rollout{From: 7}}, 6},
		{"not yet held", nil, v1alpha1.OnecloudOperationStatus{Rollout: &v1alpha1.Rollout{}}, 0},
	} {
		o := &v1alpha1.OnecloudOperation{}
		o.Spec.Rollback = c.asked
		if got := targetOf(o, c.now); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// keep stores a kept release of the cloud.
func (f *follower) keep(s release.Summary) {
	f.Helper()
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Spec.Version = s.Version
	r := release.Release{Summary: s, Contents: release.Contents{From: release.From{Cloud: cloud}}}
	secret, err := r.Secret(metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{}})
	require.NoError(f, err)
	require.NoError(f, f.client.Create(f.Context(), secret))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.contents[s.Revision] = s.Version
}

// A release made after the check does not change what a rollback goes back to.
func TestRollbackKeepsItsTarget(t *testing.T) {
	f := newFollower(t, "")
	for revision, version := range map[int]string{1: "v4.0.2", 2: "v4.0.3", 3: "v4.0.4"} {
		f.keep(release.Summary{Revision: revision, Version: version})
	}
	f.create("r", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Annotations = v1alpha1.ActionRollback, map[string]string{v1alpha1.AnnotationControl: v1alpha1.OperationPause}
	})
	f.until("r", v1alpha1.OperationPending)
	checked := f.get("r")
	checked.Status = v1alpha1.OnecloudOperationStatus{Phase: v1alpha1.OperationPaused, Target: &v1alpha1.RollbackTarget{Revision: 1, Version: "v4.0.2"}}
	for _, p := range rollback(nil).Steps {
		checked.Status.Steps = append(checked.Status.Steps, v1alpha1.OperationStep{Name: p.Name, State: v1alpha1.StepPending})
	}
	checked.Status.Steps[0].State = v1alpha1.StepDone
	require.NoError(t, f.client.Status().Update(t.Context(), checked))
	f.control("r", "")
	if o := f.until("r", v1alpha1.OperationSucceeded); o.Status.Rollout.Of != 1 {
		t.Errorf("%+v", o.Status.Rollout)
	}
	f.end("v4.0.2", "host v4.0.2", "glance v4.0.2", "region v4.0.2", "keystone v4.0.2")
}

// The check records its target.
func TestCheckOfRollbackNotesItsTarget(t *testing.T) {
	f := newFollower(t, "")
	f.keep(release.Summary{Revision: 2, Version: "v4.0.3"})
	f.create("r", func(o *v1alpha1.OnecloudOperation) { o.Spec.Action = v1alpha1.ActionRollback })
	o := f.until("r", v1alpha1.OperationSucceeded)
	if to := o.Status.Target; to == nil || to.Revision != 2 || to.Version != "v4.0.3" || o.Status.Rollout.Of != 2 {
		t.Errorf("%+v, %+v", to, o.Status.Rollout)
	}
	if !slices.Contains(o.Status.Plan, "sets as in that release: spec.version: v4.0.3") {
		t.Errorf("%q", o.Status.Plan)
	}
	// Repeated, it does not return to the release that it left, unless that is named.
	f.keep(release.Summary{Revision: 3, Version: "v4.0.4"})
	f.keep(release.Summary{Revision: o.Status.Rollout.To, Version: "v4.0.3", By: "r", Of: 2})
	again := func(o *v1alpha1.OnecloudOperation) { o.Spec.Action = v1alpha1.ActionRollback }
	f.create("again", again)
	if o := f.until("again", v1alpha1.OperationFailed); !strings.Contains(o.Status.Message, "operation r rolled it back") {
		t.Errorf("%+v", o.Status)
	}
	f.create("named", func(o *v1alpha1.OnecloudOperation) {
		again(o)
		o.Spec.Rollback = &v1alpha1.RollbackParameters{Revision: 3}
	})
	f.until("named", v1alpha1.OperationSucceeded)
}

// A rollback may make a second release, with what stays as it is: the cloud is still rolled back, and not changed since.
func TestRollbackOfTwoReleasesIsNotRepeated(t *testing.T) {
	var objects []client.Object
	for _, s := range []release.Summary{{Revision: 2, Version: "v4.0.3"}, {Revision: 3, Version: "v4.0.4"}, {Revision: 4, Of: 2, By: "r"}, {Revision: 5, By: "r"}} {
		secret, err := release.Release{Summary: s}.Secret(metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{}})
		require.NoError(t, err)
		objects = append(objects, secret)
	}
	o := op("r", 1, v1alpha1.OperationSucceeded, "")
	o.Spec.Action, o.Status.Rollout = v1alpha1.ActionRollback, &v1alpha1.Rollout{From: 3, To: 4, Of: 2}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(append(objects, o)...).Build()
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Namespace, cloud.Name, cloud.Status.Release.Revision = key.Namespace, key.Name, 5
	if to, _, err := choose(t.Context(), c, nil, cloud); err == nil || !strings.Contains(err.Error(), "operation r rolled it back") {
		t.Errorf("%d, %v", to, err)
	}
}

// After a reverted update, a rollback without a revision goes neither forward to the failed release nor to the current contents.
func TestRollbackSkipsRevertedComponents(t *testing.T) {
	f := newFollower(t, "glance")
	f.keep(release.Summary{Revision: 2, Version: "v4.0.3"})
	f.keep(release.Summary{Revision: 3, Version: "v4.0.4"})
	f.create("u", func(o *v1alpha1.OnecloudOperation) {
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.5"}
	})
	f.until("u", v1alpha1.OperationReverted)
	f.keep(release.Summary{Revision: 4, Version: "v4.0.5", By: "u"})
	f.keep(release.Summary{Revision: 5, Version: "v4.0.4", By: "u", Of: 3})
	f.create("r", func(o *v1alpha1.OnecloudOperation) { o.Spec.Action = v1alpha1.ActionRollback })
	o := f.until("r", v1alpha1.OperationSucceeded)
	if to := o.Status.Target; to == nil || to.Revision != 2 {
		t.Errorf("%+v", to)
	}
	if plan := strings.Join(o.Status.Plan, "; "); !strings.Contains(plan, "release 5, version v4.0.4 → the contents of release 2, version v4.0.3") || !strings.HasSuffix(plan, ": 4 3") {
		t.Error(plan)
	}
}

func TestFailedAt(t *testing.T) {
	update := func(name string, phase v1alpha1.OperationPhase, from int) *v1alpha1.OnecloudOperation {
		o := op(name, 1, phase, "")
		if from > 0 {
			o.Status.Rollout = &v1alpha1.Rollout{From: from}
		}
		return o
	}
	failed := failedAt([]*v1alpha1.OnecloudOperation{
		update("reverted", v1alpha1.OperationReverted, 3), update("given-up", v1alpha1.OperationFailed, 3), update("done", v1alpha1.OperationSucceeded, 3),
		update("refused", v1alpha1.OperationFailed, 0),
	})
	for _, c := range []struct {
		by   string
		of   int
		want bool
	}{{"reverted", 0, true}, {"given-up", 0, true}, {"reverted", 3, false}, {"done", 0, false}, {"refused", 0, false}, {"kubectl", 0, false}, {"", 0, false}} {
		if got := failed(release.Summary{Revision: 4, By: c.by, Of: c.of}); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

func (b *bench) versionOf(component string) string {
	b.t.Helper()
	d := &appsv1.Deployment{}
	b.get(d, "default-"+component)
	_, tag, _ := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, ":")
	return tag
}

func (b *bench) wantVersions(what, keystone, region, glance string) {
	b.t.Helper()
	got := []string{b.versionOf("keystone"), b.versionOf("region"), b.versionOf("glance")}
	if want := []string{keystone, region, glance}; !slices.Equal(got, want) {
		b.t.Errorf("%s: keystone, region and glance run %q, want %q", what, got, want)
	}
}

// A changed version moves nothing until an operation does: wave by wave forward, and back to exactly the earlier objects. A full run (OCADM_SWEEP) uses a
// cloud of all components.
func TestOnlyAnOperationMovesTheRelease(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	if os.Getenv("OCADM_SWEEP") == "" {
		b.small()
	}
	b.r.reads.operations = true
	b.settle()
	before, old, from := b.live(), b.cloud().Status.Release.Version, b.cloud().Status.Release.Revision
	const next = "v4.0.9"
	b.edit(`{"spec":{"version":"` + next + `"}}`)
	rest := func() {
		b.t.Helper()
		b.settleAll()
	}
	rest()
	b.wantVersions("without an operation", old, old, old)
	if c := b.cloud(); c.Status.Release.Revision != from || meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("release %d, %+v", c.Status.Release.Revision, c.Status.Conditions)
	}
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: v1alpha1.ActionUpdate,
		Update: &v1alpha1.UpdateParameters{Version: next}}}
	o.Namespace, o.Name = cloudKey.Namespace, "update-1"
	o.Status.Phase = v1alpha1.OperationRunning
	o.Status.Rollout = &v1alpha1.Rollout{Hold: true, Waves: []v1alpha1.Wave{
		{Name: "identity", Components: []string{"etcd", "keystone"}}, {Name: "region", Components: []string{"region"}}, {Name: "rest"},
	}}
	require.NoError(t, b.api.Create(t.Context(), o))
	step := func(change func(*v1alpha1.OnecloudOperation)) {
		t.Helper()
		change(o)
		require.NoError(t, b.api.Update(t.Context(), o))
		rest()
	}
	step(func(o *v1alpha1.OnecloudOperation) {})
	b.wantVersions("held, before it knows at which release", old, old, old)
	if c := b.cloud(); c.Status.Rollout == nil || !c.Status.Rollout.Hold || c.Status.Release.Revision != from {
		t.Errorf("%+v, release %d", c.Status.Rollout, c.Status.Release.Revision)
	}
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.From = from })
	b.wantVersions("held", old, old, old)
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Hold, o.Status.Rollout.Steer = false, 2 })
	b.wantVersions("released", old, old, old)
	if seen := b.cloud().Status.Rollout; seen == nil || seen.Steer != 2 {
		t.Errorf("%+v", seen)
	}
	if c := b.cloud(); c.Status.Release.Revision != from+1 || c.Status.Release.Version != next || c.Status.Phase != v1alpha1.PhaseUpgrading || c.Status.Release.Good != from {
		t.Errorf("%+v, %s", c.Status.Release, c.Status.Phase)
	}
	if c := b.component("region"); !c.Outdated || c.State != v1alpha1.Available || c.Message != "waiting for wave 2 of operation update-1" {
		t.Errorf("%+v", c)
	}
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Reached = 1 })
	b.wantVersions("wave 1", next, old, old)
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Reached = 2 })
	b.wantVersions("wave 2", next, next, old)
	// A lost workload of a wave that is not reached is restored as it was.
	glance := &appsv1.Deployment{}
	b.get(glance, "default-glance")
	require.NoError(t, b.api.Delete(t.Context(), glance))
	rest()
	b.wantVersions("after a loss", next, next, old)
	// Components are stopped even behind stopped ones: nothing has to be available for that.
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Stopped = []string{"keystone", "region"} })
	for name, want := range map[string]int32{"keystone": 0, "region": 0, "glance": 1} {
		d := &appsv1.Deployment{}
		if b.get(d, "default-"+name); *d.Spec.Replicas != want {
			t.Errorf("%s has %d replicas, want %d", name, *d.Spec.Replicas, want)
		}
	}
	if c := b.cloud(); !slices.Equal(c.Status.Rollout.Stopped, []string{"keystone", "region"}) {
		t.Errorf("%+v", c.Status.Rollout)
	}
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Stopped = nil })
	// Roll back.
	step(func(o *v1alpha1.OnecloudOperation) {
		o.Status.Phase, o.Status.Rollout.Reached = v1alpha1.OperationReverting, 0
	})
	b.wantVersions("back", old, old, old)
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Hold = true })
	b.edit(`{"spec":{"version":"` + old + `"}}`)
	rest()
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Hold, o.Status.Rollout.Of = false, from })
	if c := b.cloud(); c.Status.Release.Revision != from+2 || c.Status.Rollout == nil || c.Status.Rollout.Of != from || c.Status.Phase != v1alpha1.PhaseRollingBack {
		t.Errorf("%+v, %+v, %s", c.Status.Release, c.Status.Rollout, c.Status.Phase)
	}
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Phase = v1alpha1.OperationReverted })
	b.wantVersions("after the operation", old, old, old)
	c := b.cloud()
	if c.Status.Release.Revision != from+2 || c.Status.Release.Version != old || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady) || c.Status.Rollout != nil {
		t.Errorf("%+v, %+v", c.Status.Release, c.Status.Conditions)
	}
	plain := func(text string) string { return text }
	if d := release.Compare(before, b.live(), plain); !d.Empty() {
		t.Errorf("not as it was before: %+v", d)
	}
}

// A rollback keeps the block of the backups: a schedule that was set since goes on, although the earlier release has none.
func TestRollbackKeepsTheBackupSchedule(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	table := b.r.reads.catalog.only(append(few(), "backup"))
	b.r.reads.catalog, b.r.acts.catalog, b.r.reads.operations = table, table, true
	b.settle()
	then := b.cloud().Status.Release.Revision
	b.edit(`{"spec":{"backup":{"disable":false,"schedule":"@daily"}}}`)
	b.settle()
	from := b.cloud().Status.Release.Revision
	scheduled := func(when string) {
		t.Helper()
		job := &batchv1.CronJob{}
		if b.get(job, "default-backup"); job.Spec.Schedule != "@daily" {
			t.Errorf("%s: %q", when, job.Spec.Schedule)
		}
	}
	scheduled("before")
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: v1alpha1.ActionRollback}}
	o.Namespace, o.Name, o.Status.Phase = cloudKey.Namespace, "rollback-1", v1alpha1.OperationRunning
	o.Status.Rollout = &v1alpha1.Rollout{From: from, Of: then, Waves: []v1alpha1.Wave{{Name: "rest"}}}
	require.NoError(t, b.api.Create(t.Context(), o))
	b.settleAll()
	scheduled("behind its wave")
	o.Status.Rollout.Reached = 1
	require.NoError(t, b.api.Update(t.Context(), o))
	b.settleAll()
	scheduled("with its wave")
	o.Status.Phase = v1alpha1.OperationSucceeded
	require.NoError(t, b.api.Update(t.Context(), o))
	b.settle()
	scheduled("after the operation")
	if r := b.release(); r.By != o.Name || from == then {
		t.Errorf("release %d by %q, from %d to %d", r.Revision, r.By, from, then)
	}
}

// Restored databases lack what the next release did in them, and have everything that the earlier release did.
func TestForget(t *testing.T) {
	kept := map[int]*corev1.Secret{}
	made := func(revision int, effects map[string]string) *release.Release {
		r := &release.Release{Summary: release.Summary{Revision: revision}, Contents: release.Contents{Effects: effects}}
		secret, err := r.Secret(metav1.ObjectMeta{Namespace: cloudKey.Namespace, Name: "default", Labels: map[string]string{}})
		require.NoError(t, err)
		kept[revision] = secret
		return r
	}
	made(3, map[string]string{"account/region": "a", "endpoints/region": "b", "database/region": "c"})
	now := made(4, map[string]string{"account/region": "a", "endpoints/region": "B", "database/region": "C", "account/aiproxy": "d", "database/aiproxy": "e"})
	for name, c := range map[string]struct {
		rollout rollout
		want    map[string]string
	}{
		"services run":      {rollout{Rollout: v1alpha1.Rollout{From: 3}, reverting: true}, nil},
		"update reverts":    {rollout{Rollout: v1alpha1.Rollout{From: 3, Stopped: []string{"keystone"}}, reverting: true}, map[string]string{"endpoints/region": "b", "account/aiproxy": ""}},
		"rollback":          {rollout{Rollout: v1alpha1.Rollout{From: 4, Of: 3, Stopped: []string{"keystone"}}}, map[string]string{"endpoints/region": "b", "account/aiproxy": ""}},
		"rollback reverts":  {rollout{Rollout: v1alpha1.Rollout{From: 4, Of: 3, Stopped: []string{"keystone"}}, reverting: true}, map[string]string{}},
		"release not there": {rollout{Rollout: v1alpha1.Rollout{From: 2, Stopped: []string{"keystone"}}}, nil},
	} {
		got, err := c.rollout.forget(kept, now)
		if !maps.Equal(got, c.want) || (err != nil) != (name == "release not there") {
			t.Errorf("%s: %v %v, want %v", name, got, err, c.want)
		}
	}
	s := State{Cloud: newCloud(), Done: nothingDone(), Releases: releases{rollout: &rollout{forgotten: map[string]string{"endpoints/region": "b", "account/aiproxy": ""}}}}
	s.Cloud.Status.Effects = map[string]string{"account/region": "a", "endpoints/region": "B", "account/aiproxy": "d", "database/aiproxy": "e"}
	if got, want := s.recorded(), map[string]string{"account/region": "a", "endpoints/region": "b", "database/aiproxy": "e"}; !maps.Equal(got, want) {
		t.Errorf("recorded: %v, want %v", got, want)
	}
}

// TestMovesAtOnce checks that a changed version waits for an operation once the identity service has served, whatever the other components did since.
func TestMovesAtOnce(t *testing.T) {
	served := func(c *v1alpha1.OnecloudCluster) {
		c.Status.Version, c.Status.Effects = "", map[string]string{v1alpha1.EffectServed: "h"}
	}
	annotated := func(revision string) func(*v1alpha1.OnecloudCluster) {
		return func(c *v1alpha1.OnecloudCluster) {
			served(c)
			c.Annotations = map[string]string{v1alpha1.AnnotationAtOnce: revision}
		}
	}
	for _, c := range []struct {
		name           string
		change         func(*v1alpha1.OnecloudCluster)
		atOnce, noneIs bool
		waiting        bool
	}{
		{"it has never run", func(c *v1alpha1.OnecloudCluster) {
			c.Status.Version, c.Status.Effects = "", map[string]string{effects.DatabaseKey("keystone"): "h", "identity/address": "h"}
		}, false, false, false},
		{"only the identity service has served", served, false, false, true},
		{"all components have served", func(c *v1alpha1.OnecloudCluster) { c.Status.Version, c.Status.Effects = "v4.0.4", nil }, false, false, true},
		{"a user asks for it", annotated("3"), false, false, false},
		{"a user asked for it at an earlier release", annotated("2"), false, false, true},
		{"the operator is started so", served, true, false, false},
		{"the operator is not allowed to run operations", served, false, true, true},
	} {
		cr := newCloud()
		cr.UID, cr.Spec.Version = "u", "v4.0.5"
		c.change(cr)
		r := release.Release{Summary: release.Summary{Revision: 3, Version: "v4.0.4"}, Contents: release.Contents{From: release.From{Cloud: &v1alpha1.OnecloudCluster{}}}}
		secret, err := r.Secret(metav1.ObjectMeta{Namespace: cr.Namespace, Name: cr.Name, Labels: map[string]string{}})
		require.NoError(t, err)
		secret.OwnerReferences = []metav1.OwnerReference{{UID: "u", Controller: new(true)}}
		s := State{Cloud: cr, Done: nothingDone(), Releases: releases{cannotMove: c.noneIs}, Live: Live{objects: map[engine.Key]client.Object{engine.KeyOf(secret): secret}}}
		var newest int
		s.Releases.kept, newest = releasesOf(s)
		require.NoError(t, gatherRelease(&cloud{}, &s, newest, nil, c.atOnce))
		if (s.Releases.waiting == "v4.0.5") != c.waiting || (s.Cloud.Spec.Version == "v4.0.4") != c.waiting || s.Releases.free == c.waiting {
			t.Errorf("%s: waiting %q, version %s, free %t", c.name, s.Releases.waiting, s.Cloud.Spec.Version, s.Releases.free)
		}
	}
}

// TestLastFailed checks that the last operation that decided counts, and that one that moves or moved the cloud clears an earlier failure.
func TestLastFailed(t *testing.T) {
	op := func(name, action string, phase v1alpha1.OperationPhase, minute int, moved bool) v1alpha1.OnecloudOperation {
		o := v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: action}}
		o.Name, o.Status.Phase, o.Status.Start = name, phase, metav1.NewTime(b0.Add(time.Duration(minute)*time.Minute))
		if moved {
			o.Status.Rollout = &v1alpha1.Rollout{}
		}
		return o
	}
	refused := op("refused", v1alpha1.ActionUpdate, v1alpha1.OperationFailed, 1, false)
	turn := func(o v1alpha1.OnecloudOperation, n int64) v1alpha1.OnecloudOperation {
		o.Status.Turn, o.Status.End = n, o.Status.Start // within the same second
		return o
	}
	again := op("again", v1alpha1.ActionUpdate, v1alpha1.OperationFailed, 1, false)
	for _, c := range []struct {
		name string
		all  []v1alpha1.OnecloudOperation
		want string
	}{
		{"none", nil, ""},
		{"refused", []v1alpha1.OnecloudOperation{refused}, "refused"},
		{"reverted", []v1alpha1.OnecloudOperation{op("r", v1alpha1.ActionUpdate, v1alpha1.OperationReverted, 2, true), refused}, "r"},
		{"a check", []v1alpha1.OnecloudOperation{refused, op("c", v1alpha1.ActionCheck, v1alpha1.OperationSucceeded, 2, false)}, "refused"},
		{"a check that fails", []v1alpha1.OnecloudOperation{op("c", v1alpha1.ActionCheck, v1alpha1.OperationFailed, 2, false)}, ""},
		{"one that is checked", []v1alpha1.OnecloudOperation{refused, op("u", v1alpha1.ActionUpdate, v1alpha1.OperationPlanning, 2, false)}, "refused"},
		{"one that is cancelled at once", []v1alpha1.OnecloudOperation{refused, op("u", v1alpha1.ActionUpdate, v1alpha1.OperationCancelled, 2, false)}, "refused"},
		{"one that runs", []v1alpha1.OnecloudOperation{refused, op("u", v1alpha1.ActionUpdate, v1alpha1.OperationRunning, 2, true)}, ""},
		{"one that succeeds", []v1alpha1.OnecloudOperation{op("u", v1alpha1.ActionRollback, v1alpha1.OperationSucceeded, 2, true), refused}, ""},
		{"one that is cancelled later", []v1alpha1.OnecloudOperation{op("u", v1alpha1.ActionUpdate, v1alpha1.OperationCancelled, 2, true), refused}, ""},
		{"refused twice within a second", []v1alpha1.OnecloudOperation{turn(again, 3), turn(refused, 2)}, "again"},
		{"refused twice within a second, in another order", []v1alpha1.OnecloudOperation{turn(refused, 2), turn(again, 3)}, "again"},
		{"refused by an earlier operator", []v1alpha1.OnecloudOperation{turn(again, 1), refused}, "again"},
		{"one that succeeds after a clock was set back", []v1alpha1.OnecloudOperation{
			turn(op("u", v1alpha1.ActionUpdate, v1alpha1.OperationSucceeded, 2, true), 3), turn(op("ahead", v1alpha1.ActionUpdate, v1alpha1.OperationReverted, 600, true), 2),
		}, ""},
		{"an earlier success", []v1alpha1.OnecloudOperation{op("u", v1alpha1.ActionUpdate, v1alpha1.OperationSucceeded, 0, true), refused}, "refused"},
	} {
		got := ""
		if o := lastFailed("default", c.all); o != nil {
			got = o.Name
		}
		if got != c.want || lastFailed("other", c.all) != nil {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Only an operation moves a cloud, even one replaced by a file ("kubectl replace"), which lacks the finalizer and perhaps the version.
func TestReplacedCloudStaysAtItsRelease(t *testing.T) {
	for what, patch := range map[string]string{
		"another version": `{"metadata":{"finalizers":null},"spec":{"version":"v4.0.9"}}`,
		"no version":      `{"metadata":{"finalizers":null},"spec":{"version":null}}`,
	} {
		b := newBench(t, interceptor.Funcs{}, newCloud())
		b.small()
		b.r.reads.operations = true
		b.settle()
		old := b.cloud().Status.Release
		b.edit(patch)
		b.settleAll()
		b.wantVersions(what, old.Version, old.Version, old.Version)
		if c := b.cloud(); !controllerutil.ContainsFinalizer(c, v1alpha1.Finalizer) || c.Status.Release.Version != old.Version {
			t.Errorf("%s: %q, %+v", what, c.Finalizers, c.Status.Release)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/release"
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

// A changed version moves nothing until an operation lets it: wave by wave there, and back to the very objects of before.
func TestOnlyAnOperationMovesTheRelease(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.r.reads.operations, b.r.reads.waves = true, true
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
	o.Status.Rollout = &v1alpha1.Rollout{From: from, Hold: true, Waves: []v1alpha1.Wave{
		{Name: "identity", Components: []string{"etcd", "keystone"}}, {Name: "region", Components: []string{"region"}}, {Name: "rest"},
	}}
	if err := b.api.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	step := func(change func(*v1alpha1.OnecloudOperation)) {
		t.Helper()
		change(o)
		if err := b.api.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		rest()
	}
	step(func(o *v1alpha1.OnecloudOperation) {})
	b.wantVersions("held", old, old, old)
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Hold = false })
	b.wantVersions("released", old, old, old)
	if c := b.cloud(); c.Status.Release.Revision != from+1 || c.Status.Release.Version != next || c.Status.Phase != v1alpha1.PhaseUpgrading || c.Status.Release.Good != from {
		t.Errorf("%+v, %s", c.Status.Release, c.Status.Phase)
	}
	if c := b.component("region"); !c.Outdated || c.State != v1alpha1.Available || c.Message != "waits for wave 2 of operation update-1" {
		t.Errorf("%+v", c)
	}
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Reached = 1 })
	b.wantVersions("wave 1", next, old, old)
	step(func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout.Reached = 2 })
	b.wantVersions("wave 2", next, next, old)
	// A lost workload of a wave that is not reached comes back as it was.
	glance := &appsv1.Deployment{}
	b.get(glance, "default-glance")
	if err := b.api.Delete(t.Context(), glance); err != nil {
		t.Fatal(err)
	}
	rest()
	b.wantVersions("after a loss", next, next, old)
	// What is to be stopped is, also behind one that is: nothing has to be available for that.
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
	// Back.
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

// Databases that come back know nothing of what the next release did in them, and all of what the release of before did.
func TestForget(t *testing.T) {
	kept := map[int]*corev1.Secret{}
	made := func(revision int, effects map[string]string) *release.Release {
		r := &release.Release{Summary: release.Summary{Revision: revision}, Contents: release.Contents{Effects: effects}}
		secret, err := r.Secret(metav1.ObjectMeta{Namespace: cloudKey.Namespace, Name: "default", Labels: map[string]string{}})
		if err != nil {
			t.Fatal(err)
		}
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
	s := State{Cloud: newCloud(), Rollout: &rollout{forgotten: map[string]string{"endpoints/region": "b", "account/aiproxy": ""}}}
	s.Cloud.Status.Effects = map[string]string{"account/region": "a", "endpoints/region": "B", "account/aiproxy": "d", "database/aiproxy": "e"}
	if got, want := s.recorded(), map[string]string{"account/region": "a", "endpoints/region": "b", "database/aiproxy": "e"}; !maps.Equal(got, want) {
		t.Errorf("recorded: %v, want %v", got, want)
	}
}

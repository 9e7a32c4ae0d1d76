// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

// twoComponents returns a cloud with two components, the first with a database; nothing is live yet.
func twoComponents() (State, *Desired) {
	d := &Desired{Cluster: component.Cluster{Name: "default", Namespace: "onecloud"}}
	for _, c := range []component.Component{{Name: "first"}, {Name: "second", After: []string{"first"}}} {
		d.Components = append(d.Components, &target{
			Resolved: component.Resolved{Component: c, Enabled: true, Replicas: 1},
			wants: []want{
				{key: engine.Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: "onecloud", Name: "default-" + c.Name}, role: roleBase},
				{key: d.key("Deployment", c.Name, ""), hash: "1", role: roleWorkload},
			},
		})
	}
	d.Effects = []effects.Effect{{Key: "database/first", Component: "first", Stage: effects.Before, Hash: "1"}}
	s := State{Cloud: newCloud(), Now: b0, Done: nothingDone()}
	s.Live = Live{namespace: "onecloud", objects: map[engine.Key]client.Object{}}
	return s, d
}

// serve makes the workload of a component live as rendered.
func serve(s State, d *Desired, name string) {
	o := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{engine.HashAnnotation: "1"}},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1))},
		Status:     appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1},
	}
	s.Live.objects[d.key("Deployment", name, "")] = o
}

func names(items []item) []string {
	var out []string
	for _, i := range items {
		out = append(out, i.target.Name)
	}
	return out
}

// A workload waits for its effects and for earlier components; configuration does not.
func TestPlanOfEachRound(t *testing.T) {
	s, d := twoComponents()
	check := func(what string, round int, base, workloads []string) {
		t.Helper()
		p := planRound(s, d, round)
		if got := names(p.Base); !slices.Equal(got, base) {
			t.Errorf("%s: base of %q", what, got)
		}
		if got := names(p.Workloads); !slices.Equal(got, workloads) {
			t.Errorf("%s: workloads of %q", what, got)
		}
	}
	check("nothing is done", 0, []string{"first", "second"}, nil)
	s.Done.Effects["database/first"] = effects.Outcome{Effect: d.Effects[0], State: effects.Done}
	if !canProgress(s, d) {
		t.Error("a workload whose database was made does not count as progress")
	}
	check("the database was made", 1, nil, []string{"first"})
	s.outcome("first").tried = true
	check("the first one was applied", 2, nil, nil)
	serve(s, d, "first")
	check("the first one serves", 3, nil, []string{"second"})
	d.Components[1].paused = true
	check("the second one is paused", 0, []string{"first"}, nil)
}

// An option that users removed is deleted from the store before the pods that read it start; a failure to do so blocks no workload.
func TestEffectBeforeTheWorkload(t *testing.T) {
	s, d := twoComponents()
	e := effects.Effect{Key: "option/first/x", Component: "first", Stage: effects.After, Hash: "2", TryFirst: true}
	d.Effects = []effects.Effect{e}
	if got := names(planRound(s, d, 0).Workloads); len(got) > 0 {
		t.Errorf("before it was tried: workloads of %q", got)
	}
	s.Done.Effects[e.Key] = effects.Outcome{Effect: e, State: effects.Failed}
	if got := names(planRound(s, d, 1).Workloads); !slices.Equal(got, []string{"first"}) {
		t.Errorf("after it has failed: workloads of %q", got)
	}
	delete(s.Done.Effects, e.Key)
	s.Cloud.Status.Effects = map[string]string{e.Key: e.Hash}
	if got := names(planRound(s, d, 0).Workloads); !slices.Equal(got, []string{"first"}) {
		t.Errorf("once it is on record: workloads of %q", got)
	}
}

// The cleanup keeps what another component may need: claims, and objects of a component that cannot be rendered.
func TestPlanOfTheCleanup(t *testing.T) {
	s, d := twoComponents()
	add := func(kind, component string) {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: kind + component, Labels: map[string]string{v1alpha1.LabelComponent: component}, Annotations: map[string]string{engine.HashAnnotation: "1"},
		}}
		s.Live.objects[engine.Key{GVK: corev1.SchemeGroupVersion.WithKind(kind), Name: o.Name}] = o
	}
	for _, name := range []string{"first", "second"} {
		add("Service", name)
		add("PersistentVolumeClaim", name)
	}
	s.outcome("second").err = context.Canceled
	out := planCleanup(s, d)
	if len(out.deletes) != 1 || out.deletes[0].Name != "Servicefirst" {
		t.Errorf("deletes %v", out.deletes)
	}
}

// The first reconcile of a cloud prepares everything, one that finds all of it prepares nothing.
func TestPreparation(t *testing.T) {
	table, err := newCatalogue("", nil)
	require.NoError(t, err)
	s := State{Cloud: newCloud(), Now: b0, Catalog: table}
	if p := planPreparation(s); !p.finalizer || !p.generate || p.certificates == nil || !p.certificates.Due() || p.err != nil {
		t.Errorf("%+v", p)
	}
	s.Cloud.Finalizers = []string{v1alpha1.Finalizer}
	s.Secrets.credentials = &corev1.Secret{Data: map[string][]byte{component.CloudID: []byte("id")}}
	for _, k := range wantedCredentials(s).Keys {
		s.Secrets.credentials.Data[k] = []byte("password")
	}
	s.Secrets.issued = true
	if p := planPreparation(s); p.due() {
		t.Errorf("%+v", p)
	}
}

// A cloud that was rolled back to a release without a component retires it at once: an update of the operator has nothing to do with it.
func TestRetiredAfterARollback(t *testing.T) {
	s, d := twoComponents()
	d.Components[1].Enabled = false
	s.Releases.current = &release.Release{}
	s.Cloud.Status.Effects = map[string]string{"endpoints/second": "registered", "setup/first": "earlier build"}
	d.Effects = []effects.Effect{{Key: "endpoints/second", Component: "second", Hash: "retired"}, {Key: "setup/first", Component: "first", Hash: "this build"}}
	pending := map[string]bool{}
	got := (&holding{base: &Desired{Effects: slices.Clone(d.Effects)}}).holdEffects(s, d, pending)
	if len(got) != 2 || got[0].Hash != "retired" || got[1].Hash != "earlier build" || pending["second"] || !pending["first"] {
		t.Errorf("%+v, pending %v", got, pending)
	}
}

// A release that differs although nobody edited the cloud, and the operator is the same, names what is different.
func TestReasonOfAReleaseWithoutAnEdit(t *testing.T) {
	s, _ := twoComponents()
	of := func(operator, hash string) *release.Release {
		return &release.Release{Summary: release.Summary{Operator: operator}, Contents: release.Contents{From: release.From{Cloud: s.Cloud},
			Effects: map[string]string{"setup/etcd-upkeep": hash, "database/first": "1"}}}
	}
	s.Releases.current = of("v1", "1")
	for _, c := range []struct {
		next  *release.Release
		asked bool
		want  string
	}{
		{of("v1", "2"), false, "changed inputs of setup/etcd-upkeep"}, {of("v1", "2"), true, "update to operator v1"}, {of("v1", "1"), true, "update to operator v1"},
		{of("v2", "2"), false, "operator v1 → v2"},
	} {
		s.Releases.asked = c.asked
		if _, why := reasons(s, c.next); !slices.Equal(why, []string{c.want}) {
			t.Errorf("%q, want %q", why, c.want)
		}
	}
}

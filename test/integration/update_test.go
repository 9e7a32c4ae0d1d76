// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/env"
)

// TestUpdateInWaves moves a cloud to another version by its spec, and back by a rollback, on a real API server.
func TestUpdateInWaves(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	waves := func(l *env.Launch) { l.Options.Waves = true }
	e.Install(e.Minimal(), waves)
	e.StopOperator()
	e.StartOperator(waves) // the release was made by an earlier process
	first := e.Cloud().Status.Release
	e.Edit(`{"spec":{"version":"v4.0.5"}}`)
	var name string
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		if cr != nil && cr.Status.Rollout != nil {
			name = cr.Status.Rollout.Operation
		}
		return name != ""
	})
	o := e.untilOperation(name, ended)
	if o.Status.Phase != v1alpha1.OperationSucceeded {
		t.Fatalf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
	last := o.Status.Start
	for _, s := range o.Status.Steps {
		if s.State != v1alpha1.StepDone || s.Start.Before(&last) {
			t.Errorf("%+v", s)
		}
		last = s.End
	}
	e.UntilReady()
	version := func(component string) string {
		d := &appsv1.Deployment{}
		e.Get(d, "default-"+component)
		image := d.Spec.Template.Spec.Containers[0].Image
		return image[len(image)-len("v4.0.5"):]
	}
	if got := []string{version("keystone"), version("region"), version("glance")}; !slices.Equal(got, []string{"v4.0.5", "v4.0.5", "v4.0.5"}) {
		t.Errorf("after the update: %q", got)
	}
	e.operation("back", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionRollback, Rollback: &v1alpha1.RollbackParameters{
		Revision: first.Revision, KeepDatabases: true}}) // a service that is played makes its tables when it is first asked
	o = e.untilOperation("back", ended)
	if o.Status.Phase != v1alpha1.OperationSucceeded {
		t.Fatalf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
	e.UntilReady()
	cr := e.Cloud()
	if got := []string{version("keystone"), version("region"), version("glance"), cr.Spec.Version, cr.Status.Version, cr.Status.Release.Version}; slices.ContainsFunc(got,
		func(v string) bool { return v != first.Version }) {
		t.Errorf("after the rollback: %q, want %s", got, first.Version)
	}
}

// TestFailedWaveIsReverted updates to a version whose region cannot run: all components end at the version of before.
func TestFailedWaveIsReverted(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.Install(e.Minimal())
	before := e.Deployments()
	first := e.Cloud().Status.Release
	e.Kubelet.Hold("Deployment", namespace, "default-region") // its new pods are never ready
	e.operation("fails", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Timeout: "30s", Update: &v1alpha1.UpdateParameters{Version: "v4.0.5"}})
	e.untilOperation("fails", func(o *v1alpha1.OnecloudOperation) bool {
		return o.Status.Phase == v1alpha1.OperationReverting || ended(o)
	})
	e.Kubelet.Release(t.Context(), "Deployment", namespace, "default-region")
	o := e.untilOperation("fails", ended)
	if o.Status.Phase != v1alpha1.OperationReverted {
		t.Fatalf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
	e.UntilReady()
	for name, d := range e.Deployments() {
		if was := before[name]; was == nil || was.Spec.Template.Spec.Containers[0].Image != d.Spec.Template.Spec.Containers[0].Image {
			t.Errorf("%s runs %s", name, d.Spec.Template.Spec.Containers[0].Image)
		}
	}
	if cr := e.Cloud(); cr.Spec.Version != first.Version || cr.Status.Release.Version != first.Version {
		t.Errorf("spec %s, release %+v", cr.Spec.Version, cr.Status.Release)
	}
}

// TestNoUpdateWithoutImages updates to a version of which some images exist nowhere, in each way in which an update can be asked for: all of them are
// named, with where they are missing, and nothing of the cloud has changed.
func TestNoUpdateWithoutImages(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	waves := func(l *env.Launch) { l.Options.Waves = true }
	e.Install(e.Minimal(), waves)
	before, first := e.Deployments(), e.Cloud()
	unchanged := func() {
		t.Helper()
		for name, d := range e.Deployments() {
			if was := before[name]; was == nil || was.Generation != d.Generation {
				t.Errorf("Deployment %s was changed", name)
			}
		}
		if cr := e.Cloud(); cr.Status.Release != first.Status.Release || cr.Spec.Version != first.Spec.Version {
			t.Errorf("the cloud was changed: %+v", cr.Status.Release)
		}
		var pods corev1.PodList
		if err := e.Client.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil || len(pods.Items) > 0 {
			t.Errorf("%d pods are left, %v", len(pods.Items), err)
		}
	}
	for _, name := range []string{"region", "glance"} {
		e.Kubelet.Withdraw("/" + name + ":v4.0.5")
	}
	for _, args := range [][]string{
		{"cluster", "update", "--version", "v4.0.5", "--waves"}, {"cluster", "update", "--version", "v4.0.5", "--waves", "--wait"},
		{"cluster", "update", "--version", "v4.0.5", "--dry-run"}, {"operation", "check", "--version", "v4.0.5"},
	} {
		_, err := ocadm(e.Env, args...)
		found := finding.Of(err)
		if len(found) != 1 || found[0].Code != "OCA-7068" {
			t.Fatalf("%q: got %v", args, err)
		}
		for _, want := range []string{"/region:v4.0.5", "/glance:v4.0.5", "on node node1", "not found", "ocadm init phase depot --bundle FILE"} {
			if !strings.Contains(found[0].Cause+found[0].Remedy, want) {
				t.Errorf("%q: %q is missing in %+v", args, want, found[0])
			}
		}
		if strings.Contains(err.Error(), "keystone") {
			t.Errorf("%q: an image that is there is named: %v", args, err)
		}
		unchanged()
	}
	e.Edit(`{"spec":{"version":"v4.0.5"}}`)
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool { return cr != nil && cr.Spec.Version == first.Spec.Version })
	unchanged()

	e.Kubelet.Withdraw("")
	prints(e.Env, "Succeeded", "operation", "check", "--version", "v4.0.5")
	unchanged()
	e.Edit(`{"spec":{"version":"v4.0.5"}}`) // asked for again
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && cr.Status.Release.Version == "v4.0.5" && cr.Status.Rollout == nil
	})
	all, err := operation.Of(t.Context(), e.Client, client.ObjectKey{Namespace: namespace, Name: cloud})
	if err != nil {
		t.Fatal(err)
	}
	o := e.untilOperation(all[len(all)-1].Name, ended)
	if i := slices.IndexFunc(o.Status.Steps, func(s v1alpha1.OperationStep) bool { return s.Name == "pull" }); o.Status.Phase != v1alpha1.OperationSucceeded || i < 0 ||
		o.Status.Steps[i].Total == 0 || o.Status.Steps[i].Done != o.Status.Steps[i].Total {
		t.Errorf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
}

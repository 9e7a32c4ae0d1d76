// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// TestUpdateInWaves updates a cloud to another version by its spec, and reverts it by a rollback, on a real API server.
func TestUpdateInWaves(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.Install(e.Minimal())
	e.StopOperator()
	e.StartOperator() // the release was created by an earlier process
	first := e.Cloud().Status.Release
	e.serverSideApply(map[string]any{"zone": "zone0"}, true) // from now on in the user's file: the rollback must not remove it
	e.Edit(`{"spec":{"version":"v4.0.5"}}`)
	var name string
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		if cr != nil && cr.Status.Rollout != nil {
			name = cr.Status.Rollout.Operation
		}
		return name != ""
	})
	o := e.UntilOperation(name, env.Ended)
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
	// The stand-ins create their tables on the first request.
	e.followed(v1alpha1.ActionRollback, "cluster", "rollback", "--to", strconv.Itoa(first.Revision), "--keep-databases")
	e.UntilReady()
	cr := e.Cloud()
	if got := []string{version("keystone"), version("region"), version("glance"), cr.Spec.Version, cr.Status.Version, cr.Status.Release.Version}; slices.ContainsFunc(got,
		func(v string) bool { return v != first.Version }) {
		t.Errorf("after the rollback: %q, want %s", got, first.Version)
	}
}

// followed runs a command that follows an operation with -o jsonl. Each line is the current operation with its waves, the last one its final state.
func (e *cloudTest) followed(action string, args ...string) {
	e.Helper()
	out, err := ocadm(e.Env, append(args, "--wait", "-o", "jsonl")...)
	require.NoError(e, err)
	var phases []v1alpha1.OperationPhase
	waves := map[string]bool{}
	for line := range strings.Lines(out) {
		var o v1alpha1.OnecloudOperation
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Spec.Action != action {
			e.Fatalf("%v: %q", err, line)
		}
		phases = append(phases, o.Status.Phase)
		for _, s := range o.Status.Steps {
			if s.State == v1alpha1.StepRunning {
				waves[s.Name] = true
			}
		}
	}
	if n := len(phases); n < 5 || phases[n-1] != v1alpha1.OperationSucceeded || !slices.Contains(phases, v1alpha1.OperationRunning) || !waves["wave-identity"] {
		e.Errorf("%d lines, phases %q, steps that were seen to run %v", n, phases, waves)
	}
}

// TestFailedWaveIsReverted updates to a version whose region cannot run. All components end at the previous version.
func TestFailedWaveIsReverted(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.Install(e.Minimal())
	before := e.Deployments()
	first := e.Cloud().Status.Release
	e.Kubelet.Hold("Deployment", namespace, "default-region") // its new pods are never ready
	e.Operation("fails", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Timeout: "30s", Update: &v1alpha1.UpdateParameters{Version: "v4.0.5"}})
	e.UntilOperation("fails", func(o *v1alpha1.OnecloudOperation) bool {
		return o.Status.Phase == v1alpha1.OperationReverting || env.Ended(o)
	})
	e.Kubelet.Release(t.Context(), "Deployment", namespace, "default-region")
	o := e.UntilOperation("fails", env.Ended)
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

// TestNoUpdateWithoutImages updates to a version some of whose images exist nowhere, in each way of requesting an update. All of them are named, with
// where they are missing, and nothing of the cloud changes.
func TestNoUpdateWithoutImages(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.Install(e.Minimal())
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
		{"cluster", "update", "--version", "v4.0.5"}, {"cluster", "update", "--version", "v4.0.5", "--waves", "--wait"},
		{"cluster", "update", "--version", "v4.0.5", "--dry-run"}, {"operation", "check", "--version", "v4.0.5"},
	} {
		_, err := ocadm(e.Env, args...)
		found := finding.Of(err)
		if len(found) != 1 || found[0].Code != "OCA-7068" {
			t.Fatalf("%q: got %v", args, err)
		}
		for _, want := range []string{"2 images of ", ": glance:v4.0.5, region:v4.0.5 on node node1: ", "not found", "ocadm init phase depot --bundle FILE"} {
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
	e.isRefused("v4.0.5", first.Spec.Version, "OCA-7068", "use another --version")
	unchanged()

	e.Kubelet.Withdraw("")
	prints(e.Env, "Succeeded", "operation", "check", "--version", "v4.0.5")
	unchanged()
	e.Edit(`{"spec":{"version":"v4.0.5"}}`) // requested again
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && cr.Status.Release.Version == "v4.0.5" && cr.Status.Rollout == nil
	})
	e.notRefused()
	all := e.Operations()
	o := e.UntilOperation(all[len(all)-1].Name, env.Ended)
	if i := slices.IndexFunc(o.Status.Steps, func(s v1alpha1.OperationStep) bool { return s.Name == "pull" }); o.Status.Phase != v1alpha1.OperationSucceeded || i < 0 ||
		o.Status.Steps[i].Total == 0 || o.Status.Steps[i].Done != o.Status.Steps[i].Total {
		t.Errorf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
}

// isRefused waits until an update was refused, and checks its finding in all places where users see it.
func (e *cloudTest) isRefused(version, inForce, code, next string) {
	e.Helper()
	var c *metav1.Condition
	var last string
	e.Eventually(func() (bool, string) {
		cr, all := e.Cloud(), e.Operations()
		if last = ""; len(all) > 0 {
			last = all[len(all)-1].Name
		}
		c = meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionUpdateFailed)
		return c != nil && strings.HasSuffix(c.Message, " "+last) && cr.Spec.Version == inForce && cr.Status.ObservedGeneration == cr.Generation,
			fmt.Sprintf("version %s, last operation %s: %+v", cr.Spec.Version, last, c)
	})
	for _, want := range []string{"Update to " + version + " was refused: " + code + " ", "; next: ", next, "; details: ocadm operation show " + last} {
		if c.Reason != "Refused" || !strings.Contains(c.Message, want) {
			e.Errorf("%q is missing in %s: %s", want, c.Reason, c.Message)
		}
	}
	if out, _ := ocadm(e.Env, "cluster", "status"); !strings.Contains(out, "operation failed: "+c.Message) { // it need not be Ready
		e.Errorf("status does not say it:\n%s", out)
	}
	if out, _ := ocadm(e.Env, "why"); !strings.Contains(out, "OCA-7551") { // listed below the Deployment of the operator, which this process replaces
		e.Errorf("why does not say it:\n%s", out)
	}
}

func (e *cloudTest) notRefused() {
	e.Helper()
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionUpdateFailed) == nil
	})
}

// TestIncompleteCloudIsNotMovedAtOnce checks that a cloud with users' data, one component of which has never been Available, refuses a changed
// version until that component is repaired, and then moves in waves. A cloud whose identity service has never served is updated without waves.
func TestIncompleteCloudIsNotMovedAtOnce(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.Kubelet.Hold("Deployment", namespace, "default-keystone")
	e.Kubelet.Hold("Deployment", namespace, "default-glance")
	e.StartOperator()
	cr := e.Only("keystone", "region", "glance", "host")
	cr.Spec.Version = "v4.0.3"
	e.Create(cr)
	runs := func(component, version string) func() (bool, string) {
		return func() (bool, string) {
			d := e.Deployments()[component]
			return d != nil && strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":"+version), component + " does not run " + version
		}
	}
	e.Eventually(runs("keystone", "v4.0.3"))
	e.Rest()
	e.Edit(`{"spec":{"version":"v4.0.4"}}`) // the first one was a mistake
	e.Eventually(runs("keystone", "v4.0.4"))
	if all := e.Operations(); len(all) > 0 {
		t.Errorf("a cloud that has never run was moved by %s", all[0].Name)
	}

	e.Kubelet.Release(t.Context(), "Deployment", namespace, "default-keystone")
	e.UntilComponent("region", func(c v1alpha1.ComponentStatus) bool { return c.State == v1alpha1.Available })
	e.Rest()
	if v := e.Cloud().Status.Version; v != "" {
		t.Fatalf("the cloud has been complete, at %s", v)
	}
	before := e.Deployments()
	e.Edit(`{"spec":{"version":"v4.0.5"}}`)
	e.isRefused("v4.0.5", "v4.0.4", "OCA-7051", "repair them first")
	if f := e.Operations()[0].Status.Findings; len(f) == 0 || !strings.Contains(f[0].Cause, "glance is Progressing") {
		t.Errorf("%+v", f)
	}
	for name, d := range e.Deployments() {
		if before[name].Generation != d.Generation {
			t.Errorf("Deployment %s was changed", name)
		}
	}

	e.Kubelet.Release(t.Context(), "Deployment", namespace, "default-glance")
	e.UntilReady()
	e.Edit(`{"spec":{"version":"v4.0.5"}}`)
	e.Eventually(runs("glance", "v4.0.5"))
	e.UntilReady()
	e.notRefused()
	all := e.Operations()
	if o := e.UntilOperation(all[len(all)-1].Name, env.Ended); len(all) != 2 || o.Status.Phase != v1alpha1.OperationSucceeded {
		t.Errorf("%d operations; %s: %s", len(all), o.Status.Phase, o.Status.Message)
	}
}

// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/status"
)

var (
	t0 = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	t1 = t0.Add(time.Minute)
)

func service() component.Resolved {
	return component.Resolved{Component: component.Component{Name: "glance"}, Enabled: true, FullImage: "r.io:5000/y/glance:v2", PullPolicy: "IfNotPresent"}
}

func deployment(generation, observed int64, wanted, total, updated, available int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: generation},
		Spec:       appsv1.DeploymentSpec{Replicas: &wanted, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "glance"}}},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: observed, Replicas: total, UpdatedReplicas: updated, AvailableReplicas: available, ReadyReplicas: available,
		},
	}
}

// members returns a StatefulSet with as many ready pods of the new revision as given.
func members(current, next string, wanted, ready int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "etcd"}, Spec: appsv1.StatefulSetSpec{Replicas: &wanted},
		Status: appsv1.StatefulSetStatus{
			CurrentRevision: current, UpdateRevision: next, Replicas: ready, UpdatedReplicas: ready, AvailableReplicas: ready, ReadyReplicas: ready,
		},
	}
}

const quota = `pods "default-glance-5f698df8c7-8vqdf" is forbidden: exceeded quota: tight, requested: pods=1, used: pods=1, limited: pods=1`

// with adds conditions of the Deployment's controller, oldest first.
func with(d *appsv1.Deployment, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, message string) *appsv1.Deployment {
	d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: kind, Status: status, Message: message})
	return d
}

// refused returns a Deployment some of whose pods the API server rejects, gaveUp one that has waited for its pods too long.
func refused(d *appsv1.Deployment) *appsv1.Deployment {
	return with(d, appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, quota)
}

func gaveUp(d *appsv1.Deployment) *appsv1.Deployment {
	return with(d, appsv1.DeploymentProgressing, corev1.ConditionFalse, "took too long")
}

func pod(s corev1.ContainerStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "glance"}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{s}},
	}
}

func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "glance", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

// onHosts is a pod template for compute nodes.
var onHosts = corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"onecloud.yunion.io/host": "enable"}}}

func TestComponent(t *testing.T) {
	crash := waiting("CrashLoopBackOff", "back-off 10s restarting failed container")
	crash.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	stalled := gaveUp(deployment(1, 1, 1, 1, 1, 0))
	daemons := func(wanted, updated, available int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: onHosts}, Status: appsv1.DaemonSetStatus{
			DesiredNumberScheduled: wanted, CurrentNumberScheduled: updated, UpdatedNumberScheduled: updated, NumberAvailable: available,
		}}
	}
	one := service()
	one.Replicas = 1
	stopped := daemons(0, 0, 0)
	stopped.Spec.Template.Spec.NodeSelector = map[string]string{v1alpha1.LabelNoNode: "true"}
	cron := service()
	cron.Workload.Kind, cron.Schedule = component.CronJob, "0 2 * * *"
	record := service()
	record.Workload.Kind = component.NoWorkload
	off := service()
	off.Enabled, off.DisabledReason = false, "not in edition ce"

	for _, c := range []struct {
		name     string
		observed status.Observed
		live     client.Object
		pods     []corev1.Pod
		state    v1alpha1.State
		reason   string
		message  string
	}{
		{"disabled", status.Observed{Resolved: off}, nil, nil, v1alpha1.Disabled, status.ReasonDisabled, "not in edition ce"},
		{"bad block", status.Observed{Problem: "spec.glance.affinity: bad"}, nil, nil, v1alpha1.Degraded, status.ReasonInvalid, "spec.glance.affinity: bad"},
		{"refused", status.Observed{Refused: "field is immutable"}, nil, nil, v1alpha1.Degraded, status.ReasonNotApplied, "field is immutable"},
		{"effect runs", status.Observed{Effects: []status.Effect{{Key: "database/glance", Before: true}}}, nil, nil,
			v1alpha1.Provisioning, status.ReasonEffectPending, "database/glance is in progress"},
		{"effect waits", status.Observed{Effects: []status.Effect{{Key: "account/glance", Before: true, Waiting: "keystone"}}, BlockedBy: []string{"keystone"}}, nil, nil,
			v1alpha1.Waiting, status.ReasonEffectPending, "account/glance waits for keystone"},
		{"effect failed", status.Observed{Effects: []status.Effect{{Key: "database/glance", Before: true, Error: "access denied"}}}, nil, nil,
			v1alpha1.Degraded, status.ReasonEffectFailed, "database/glance: access denied"},
		{"blocked", status.Observed{BlockedBy: []string{"keystone", "region"}}, nil, nil, v1alpha1.Waiting, status.ReasonDependencies, "waiting for keystone, region"},
		{"not made", status.Observed{}, nil, nil, v1alpha1.Progressing, status.ReasonNotMade, "deployment is being created"},
		{"not seen yet", status.Observed{}, deployment(2, 1, 1, 1, 1, 1), nil, v1alpha1.Progressing, status.ReasonRollout, "Kubernetes has not processed the change yet"},
		{"rolling", status.Observed{}, deployment(2, 2, 2, 3, 1, 2), nil, v1alpha1.Progressing, status.ReasonRollout, "1 of 2 pods moved to the new version"},
		{"old pod still serves", status.Observed{}, deployment(2, 2, 1, 2, 1, 1), nil, v1alpha1.Progressing, status.ReasonRollout, "0 of 1 pods ready"},
		{"starting", status.Observed{}, deployment(1, 1, 1, 1, 1, 0), nil, v1alpha1.Progressing, status.ReasonRollout, "0 of 1 pods ready"},
		{"pulling is no trouble", status.Observed{}, deployment(1, 1, 1, 1, 1, 0), []corev1.Pod{pod(waiting("ContainerCreating", ""))},
			v1alpha1.Progressing, status.ReasonRollout, "0 of 1 pods ready"},
		{"no image", status.Observed{}, deployment(1, 1, 1, 1, 1, 0), []corev1.Pod{pod(waiting("ImagePullBackOff", "not found"))},
			v1alpha1.Degraded, status.ReasonPods, "0 of 1 pods ready; container glance: ImagePullBackOff: not found"},
		{"two pods, one reason", status.Observed{}, deployment(1, 1, 2, 2, 2, 0), []corev1.Pod{pod(crash), pod(crash)},
			v1alpha1.Degraded, status.ReasonPods, "0 of 2 pods ready; container glance: CrashLoopBackOff, last exit 1"},
		{"gave up", status.Observed{}, stalled, nil, v1alpha1.Degraded, status.ReasonStalled, "0 of 1 pods ready; took too long"},
		{"pods are refused", status.Observed{}, refused(deployment(1, 1, 1, 0, 0, 0)), nil, v1alpha1.Degraded, status.ReasonStalled, "0 of 1 pods ready; " + quota},
		{"pods are refused until it gave up", status.Observed{}, gaveUp(refused(deployment(1, 1, 1, 0, 0, 0))), nil,
			v1alpha1.Degraded, status.ReasonStalled, "0 of 1 pods ready; " + quota},
		{"the last pod of a release is refused, one of the new ones serves", status.Observed{}, refused(deployment(2, 2, 2, 2, 1, 2)), nil,
			v1alpha1.Degraded, status.ReasonStalled, "1 of 2 pods ready; " + quota},
		{"available", status.Observed{}, deployment(1, 1, 1, 1, 1, 1), nil, v1alpha1.Available, status.ReasonAvailable, ""},
		{"available, endpoints to come", status.Observed{Effects: []status.Effect{{Key: "endpoints/glance"}}}, deployment(1, 1, 1, 1, 1, 1), nil,
			v1alpha1.Provisioning, status.ReasonEffectPending, "endpoints/glance is in progress"},
		{"a member is missing", status.Observed{}, members("r1", "r1", 3, 2), nil, v1alpha1.Progressing, status.ReasonRollout,
			"2 of 3 pods ready; 1 not created yet (kubectl -n n describe statefulset etcd)"},
		{"a member moves", status.Observed{}, members("r1", "r2", 3, 2), nil, v1alpha1.Progressing, status.ReasonRollout,
			"2 of 3 pods moved to the new version; 1 not created yet (kubectl -n n describe statefulset etcd)"},
		{"daemons", status.Observed{}, daemons(2, 2, 1), nil, v1alpha1.Progressing, status.ReasonRollout, "1 of 2 pods ready"},
		{"a daemon is refused", status.Observed{}, daemons(2, 1, 1), nil, v1alpha1.Progressing, status.ReasonRollout,
			"1 of 2 pods moved to the new version; 1 not created yet (kubectl -n  describe daemonset )"},
		{"no node for daemons", status.Observed{}, daemons(0, 0, 0), nil, v1alpha1.Idle, status.ReasonNoNodes, "no node has label onecloud.yunion.io/host=enable"},
		{"as scheduled", status.Observed{Resolved: cron}, &batchv1.CronJob{}, nil, v1alpha1.Available, status.ReasonAsScheduled, "runs at 0 2 * * *"},
		{"last run failed", status.Observed{Resolved: cron}, &batchv1.CronJob{Status: batchv1.CronJobStatus{LastScheduleTime: at(48), LastSuccessfulTime: at(25)}}, nil,
			v1alpha1.Degraded, status.ReasonLastRunFailed, "the run of 2026-01-03T00:00:00Z failed; the last success was at 2026-01-02T01:00:00Z"},
		{"no run succeeded yet", status.Observed{Resolved: cron}, &batchv1.CronJob{Status: batchv1.CronJobStatus{LastScheduleTime: at(48)}}, nil,
			v1alpha1.Degraded, status.ReasonLastRunFailed, "the run of 2026-01-03T00:00:00Z failed; none has succeeded yet"},
		{"under way", status.Observed{Resolved: cron}, &batchv1.CronJob{Status: batchv1.CronJobStatus{LastScheduleTime: at(48), Active: []corev1.ObjectReference{{Name: "x"}}}}, nil,
			v1alpha1.Available, status.ReasonAsScheduled, "runs at 0 2 * * *"},
		{"under way, and its image cannot be pulled", status.Observed{Resolved: cron},
			&batchv1.CronJob{Status: batchv1.CronJobStatus{LastScheduleTime: at(48), Active: []corev1.ObjectReference{{Name: "x"}}}},
			[]corev1.Pod{ofJob("x", pod(waiting("ImagePullBackOff", ""))), ofJob("earlier", pod(waiting("ErrImagePull", "")))},
			v1alpha1.Degraded, status.ReasonLastRunFailed, "the run of 2026-01-03T00:00:00Z cannot continue; container glance: ImagePullBackOff"},
		{"last run succeeded", status.Observed{Resolved: cron}, &batchv1.CronJob{Status: batchv1.CronJobStatus{LastScheduleTime: at(48), LastSuccessfulTime: at(49)}}, nil,
			v1alpha1.Available, status.ReasonAsScheduled, "runs at 0 2 * * *"},
		{"suspended", status.Observed{Resolved: cron}, &batchv1.CronJob{Spec: batchv1.CronJobSpec{Suspend: new(true)}}, nil,
			v1alpha1.Degraded, status.ReasonStalled, "the CronJob is suspended"},
		{"invalid option", status.Observed{InvalidOptions: "ConfigMap default-glance: …"}, deployment(1, 1, 1, 1, 1, 1), nil,
			v1alpha1.Degraded, status.ReasonInvalidOption, "ConfigMap default-glance: …"},
		{"invalid option, not up yet", status.Observed{InvalidOptions: "bad", BlockedBy: []string{"keystone"}}, nil, nil,
			v1alpha1.Degraded, status.ReasonInvalidOption, "bad"},
		{"invalid option and worse", status.Observed{InvalidOptions: "bad", Refused: "field is immutable"}, nil, nil,
			v1alpha1.Degraded, status.ReasonNotApplied, "field is immutable; bad"},
		{"invalid option of what is off", status.Observed{Resolved: off, InvalidOptions: "bad"}, nil, nil, v1alpha1.Disabled, status.ReasonDisabled, "not in edition ce"},
		{"only a record", status.Observed{Resolved: record}, nil, nil, v1alpha1.Available, status.ReasonConfigurations, ""},
		{"stopped", status.Observed{Paused: true}, deployment(1, 1, 0, 0, 0, 0), nil, v1alpha1.Waiting, status.ReasonPaused,
			"stopped, and paused by annotation onecloud.yunion.io/paused"},
		{"stopped daemons", status.Observed{Paused: true}, stopped, nil, v1alpha1.Waiting, status.ReasonPaused,
			"stopped, and paused by annotation onecloud.yunion.io/paused"},
		{"stopped by an operation", status.Observed{Resolved: one, Held: "stopped by operation u1"}, deployment(1, 1, 0, 0, 0, 0), nil, v1alpha1.Progressing, status.ReasonRollout,
			"stopped by operation u1"},
		{"paused", status.Observed{Paused: true}, deployment(1, 1, 1, 1, 1, 1), nil, v1alpha1.Available, status.ReasonPaused, "paused by annotation onecloud.yunion.io/paused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.observed
			o.Name, o.Now = "glance", t0
			if o.Resolved.Name == "" {
				o.Resolved = service()
			}
			if c.live != nil {
				o.Workload = status.WorkloadOf(c.live, status.Seen{Pods: c.pods, Now: t0})
			}
			got := status.Component(o)
			if got.State != c.state || got.Reason != c.reason || got.Message != c.message {
				t.Errorf("got %s %s %q", got.State, got.Reason, got.Message)
			}
			// The same observation later gives the same status.
			o.Previous, o.Now = &got, t1
			if d := cmp.Diff(got, status.Component(o)); d != "" {
				t.Errorf("it changes by itself:\n%s", d)
			}
		})
	}
}

// ofJob returns a pod of a Job.
func ofJob(name string, p corev1.Pod) corev1.Pod {
	p.Labels = map[string]string{batchv1.JobNameLabel: name}
	return p
}

func TestVersionMovesWhenItServes(t *testing.T) {
	o := status.Observed{Name: "glance", Resolved: service(), Now: t0, Previous: &v1alpha1.ComponentStatus{State: v1alpha1.Available, Version: "v1"}}
	o.Workload = status.WorkloadOf(deployment(2, 2, 1, 2, 1, 1), status.Seen{})
	if s := status.Component(o); s.Version != "v1" || s.State != v1alpha1.Progressing {
		t.Errorf("while it rolls: %s %s", s.Version, s.State)
	}
	o.Workload = status.WorkloadOf(deployment(2, 2, 1, 1, 1, 1), status.Seen{})
	if s := status.Component(o); s.Version != "v2" || s.State != v1alpha1.Available || !s.Since.Time.Equal(t0) {
		t.Errorf("afterwards: %+v", s)
	}
}

// An invalid option holds up the configuration, not a new version.
func TestVersionMovesWithAnInvalidOption(t *testing.T) {
	o := status.Observed{Name: "glance", Resolved: service(), Now: t0, InvalidOptions: "bad", Previous: &v1alpha1.ComponentStatus{State: v1alpha1.Degraded, Version: "v1"}}
	o.Workload = status.WorkloadOf(deployment(2, 2, 1, 1, 1, 1), status.Seen{})
	if s := status.Component(o); s.Version != "v2" || s.State != v1alpha1.Degraded {
		t.Errorf("%s %s", s.Version, s.State)
	}
}

func states(all ...v1alpha1.State) []v1alpha1.ComponentStatus {
	var out []v1alpha1.ComponentStatus
	for i, s := range all {
		out = append(out, v1alpha1.ComponentStatus{Name: string(rune('a' + i)), State: s, Message: "why"})
	}
	return out
}

// conditions returns the conditions of a cloud with these components, after the previous ones.
func conditions(previous []metav1.Condition, components []v1alpha1.ComponentStatus, generation int64, now time.Time) []metav1.Condition {
	cr := &v1alpha1.OnecloudCluster{Status: v1alpha1.OnecloudClusterStatus{Conditions: previous, Components: components}}
	cr.Generation = generation
	c := status.Of(cr, now)
	c.Summarize()
	return c.Conditions
}

// TestConditionNamesTheCloud checks that a pasted command of a condition does not act on the default cloud instead.
func TestConditionNamesTheCloud(t *testing.T) {
	for name, want := range map[string]string{"default": "", "prod": "--name prod --namespace two "} {
		cr := &v1alpha1.OnecloudCluster{}
		cr.Name, cr.Namespace = name, map[string]string{"default": "onecloud", "prod": "two"}[name]
		c := status.Of(cr, t0)
		c.VersionWaits("v2", "v1", false)
		got := status.Message(c.Conditions, v1alpha1.ConditionReady)
		if list := strings.TrimSpace(": ocadm operation list " + want); !strings.Contains(got, list+"; ") || !strings.HasSuffix(got, "to try now: ocadm cluster update "+want+"--version v2") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestConditions(t *testing.T) {
	const yes, no = "True", "False"
	for _, c := range []struct {
		name                         string
		components                   []v1alpha1.ComponentStatus
		ready, progressing, degraded string
	}{
		{"all there", states(v1alpha1.Available, v1alpha1.Disabled), yes, no, no},
		{"one has no node", states(v1alpha1.Available, v1alpha1.Idle), yes, no, no},
		{"on the way", states(v1alpha1.Available, v1alpha1.Waiting), no, yes, no},
		{"one is broken", states(v1alpha1.Available, v1alpha1.Degraded), no, no, yes},
		{"both", states(v1alpha1.Progressing, v1alpha1.Degraded), no, yes, yes},
		{"nothing yet", nil, no, no, no},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := conditions(nil, c.components, 3, t0)
			got := map[string]string{}
			for _, k := range first {
				got[k.Type] = string(k.Status)
				if k.ObservedGeneration != 3 || !k.LastTransitionTime.Time.Equal(t0) {
					t.Errorf("%+v", k)
				}
			}
			want := map[string]string{v1alpha1.ConditionReady: c.ready, v1alpha1.ConditionProgressing: c.progressing, v1alpha1.ConditionDegraded: c.degraded}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(first, conditions(first, c.components, 3, t1)); d != "" {
				t.Errorf("they change by themselves:\n%s", d)
			}
		})
	}
	before := conditions(nil, states(v1alpha1.Available), 1, t0)
	after := conditions(before, states(v1alpha1.Degraded), 2, t1)
	if !after[0].LastTransitionTime.Time.Equal(t1) || !strings.Contains(after[2].Message, "a: why") {
		t.Errorf("%+v", after)
	}
	if before[0].Status != metav1.ConditionTrue {
		t.Error("the previous conditions were changed in place")
	}
}

// A condition keeps its time while its status stays the same, whatever its message, and adopts the observed generation.
func TestConditionKeepsItsTime(t *testing.T) {
	c := conditions(nil, states(v1alpha1.Waiting, v1alpha1.Waiting), 1, t0)
	c = conditions(c, states(v1alpha1.Available, v1alpha1.Progressing), 2, t1)
	for _, k := range c {
		if !k.LastTransitionTime.Time.Equal(t0) || k.ObservedGeneration != 2 {
			t.Errorf("%s: since %s, generation %d", k.Type, k.LastTransitionTime, k.ObservedGeneration)
		}
	}
	if ready := c[0]; ready.Message != "1 of 2 components are Available; in progress: b" {
		t.Errorf("%+v", ready)
	}
	for name, overrule := range map[string]func(*status.Cloud){ // it sets a condition that was just derived from the components
		"paused":                 func(c *status.Cloud) { c.Paused() },
		"waits for an operation": func(c *status.Cloud) { c.VersionWaits("v4.1", "v4.0", false) },
	} {
		cr := &v1alpha1.OnecloudCluster{}
		for _, at := range []time.Time{t0, t1} {
			cr.Status.Components = states(v1alpha1.Available)
			if name == "paused" {
				cr.Status.Components = states(v1alpha1.Waiting)
			}
			of := status.Of(cr, at)
			of.Summarize()
			overrule(of)
			cr.Status = of.OnecloudClusterStatus
		}
		for _, k := range cr.Status.Conditions {
			if !k.LastTransitionTime.Time.Equal(t0) {
				t.Errorf("%s: %s changed its time without a change", name, k.Type)
			}
		}
	}
}

func TestPhaseAndVersion(t *testing.T) {
	for _, c := range []struct {
		name            string
		components      []v1alpha1.ComponentStatus
		running, wanted string
		phase           v1alpha1.Phase
		version         string
	}{
		{"first steps", states(v1alpha1.Waiting), "", "v1", v1alpha1.PhaseCreating, ""},
		{"a stumble while it is made", states(v1alpha1.Waiting, v1alpha1.Degraded), "", "v1", v1alpha1.PhaseCreating, ""},
		{"stuck", states(v1alpha1.Available, v1alpha1.Degraded), "", "v1", v1alpha1.PhaseFailed, ""},
		{"done", states(v1alpha1.Available), "", "v1", v1alpha1.PhaseRunning, "v1"},
		{"done, one has no node", states(v1alpha1.Available, v1alpha1.Idle), "", "v1", v1alpha1.PhaseRunning, "v1"},
		{"upgrade", states(v1alpha1.Progressing), "v1", "v2", v1alpha1.PhaseUpgrading, "v1"},
		{"upgraded", states(v1alpha1.Available), "v1", "v2", v1alpha1.PhaseRunning, "v2"},
		{"a pod restarts", states(v1alpha1.Progressing), "v1", "v1", v1alpha1.PhaseRunning, "v1"},
		{"broken", states(v1alpha1.Degraded, v1alpha1.Progressing), "v1", "v1", v1alpha1.PhaseFailed, "v1"},
	} {
		version := status.Version(c.running, c.wanted, c.components)
		if phase := status.Phase(c.components, version, c.wanted); phase != c.phase || version != c.version {
			t.Errorf("%s: %s %s, want %s %s", c.name, phase, version, c.phase, c.version)
		}
	}
	deleting := status.Of(&v1alpha1.OnecloudCluster{Status: v1alpha1.OnecloudClusterStatus{Phase: v1alpha1.PhaseRunning}}, t0)
	if deleting.Deleting(""); deleting.Phase != v1alpha1.PhaseDeleting {
		t.Error("deleting does not win")
	}
}

func TestLegacy(t *testing.T) {
	r := service()
	for image, want := range map[string]v1alpha1.ImageStatus{
		"r.io:5000/y/glance:v2":  {Repository: "r.io:5000/y", ImageName: "glance", Tag: "v2"},
		"r.io:5000/y/glance":     {Repository: "r.io:5000/y", ImageName: "glance"},
		"glance:v2":              {ImageName: "glance", Tag: "v2"},
		"r.io/glance@sha256:abc": {Repository: "r.io", ImageName: "glance", Tag: "sha256:abc"},
	} {
		want.Image, want.ImagePullPolicy = image, corev1.PullIfNotPresent
		got := status.Legacy(r, v1alpha1.ComponentStatus{State: v1alpha1.Available, Image: image})
		if d := cmp.Diff(&v1alpha1.WorkloadStatus{Phase: v1alpha1.WorkloadNormal, ImageStatus: &want}, got); d != "" {
			t.Error(d)
		}
	}
}

// at returns a time some hours after the first of January.
func at(hours int) *metav1.Time {
	t := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(hours) * time.Hour))
	return &t
}

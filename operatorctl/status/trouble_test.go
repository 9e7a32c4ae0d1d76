// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/status"
)

func ended(code int32, message string, from, to time.Duration) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message,
		StartedAt: metav1.NewTime(t0.Add(from)), FinishedAt: metav1.NewTime(t0.Add(to))}
}

func running(restarts int32, since time.Duration, last *corev1.ContainerStateTerminated) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "glance", RestartCount: restarts,
		State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0.Add(since))}},
		LastTerminationState: corev1.ContainerState{Terminated: last}}
}

// A container that keeps terminating is Degraded in every round, with the same message, whether it waits, runs or has just ended, and although its
// controller counts it as available in between.
func TestCrashLoopStaysDegraded(t *testing.T) {
	const s = time.Second
	waits := waiting("CrashLoopBackOff", "back-off 20s")
	waits.RestartCount, waits.LastTerminationState.Terminated = 3, ended(1, "error: no key", 0, 30*s)
	justEnded := running(3, 0, ended(1, "error: another", -60*s, -30*s))
	justEnded.State = corev1.ContainerState{Terminated: ended(1, "error: no key", 0, 30*s)}
	const why = "container glance: CrashLoopBackOff, last exit 1: error: no key"
	for _, c := range []struct {
		name      string
		container corev1.ContainerStatus
		available int32
		at        time.Duration
		state     v1alpha1.State
		message   string
		due       time.Duration
	}{
		{"it waits", waits, 0, 31 * s, v1alpha1.Degraded, "0 of 1 pods ready; " + why, 0},
		{"it runs, not ready", running(3, 40*s, ended(1, "error: no key", 0, 30*s)), 0, 41 * s, v1alpha1.Degraded, "0 of 1 pods ready; " + why, 100 * s},
		{"it runs and is ready", running(3, 40*s, ended(1, "error: no key", 0, 30*s)), 1, 60 * s, v1alpha1.Degraded, why, 100 * s},
		{"it has run as long as last time", running(3, 40*s, ended(1, "error: no key", 0, 30*s)), 1, 70 * s, v1alpha1.Degraded, why, 100 * s},
		{"it has just ended", justEnded, 0, 30 * s, v1alpha1.Degraded, "0 of 1 pods ready; " + why, 0},
		{"it has run twice as long", running(3, 40*s, ended(1, "error: no key", 0, 30*s)), 1, 100 * s, v1alpha1.Available, "", 0},
		{"it has run half a minute longer", running(3, 400*s, ended(1, "error: no key", 0, 300*s)), 1, 730 * s, v1alpha1.Available, "", 0},
		{"it has not", running(3, 400*s, ended(1, "error: no key", 0, 300*s)), 1, 729 * s, v1alpha1.Degraded, why, 730 * s},
		{"it could not be started", running(3, 40*s, &corev1.ContainerStateTerminated{ExitCode: 128}), 1, 42 * s,
			v1alpha1.Degraded, "container glance: CrashLoopBackOff, last exit 128", 45 * s},
		{"it ended once", running(1, 40*s, ended(1, "error: no key", 0, 30*s)), 1, 41 * s, v1alpha1.Available, "", 0},
		{"its node lost power twice", running(2, 440*s, &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown", StartedAt: metav1.NewTime(t0), FinishedAt: metav1.NewTime(t0.Add(430 * s))}),
			1, 441 * s, v1alpha1.Available, "", 0},
		{"a clock was ahead when it started", running(3, 8*time.Hour, ended(1, "error: no key", 8*time.Hour-60*s, 8*time.Hour-30*s)), 1, 60 * s, v1alpha1.Available, "", 0},
		{"it had run for long", running(7, 700*s, ended(255, "", 0, 660*s)), 1, 701 * s, v1alpha1.Available, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := status.WorkloadOf(deployment(1, 1, 1, 1, 1, c.available), status.Seen{Pods: []corev1.Pod{pod(c.container)}, Now: t0.Add(c.at)})
			got := status.Component(status.Observed{Name: "glance", Resolved: service(), Workload: w, Current: true, Now: t0.Add(c.at)})
			if got.State != c.state || got.Message != c.message {
				t.Errorf("got %s %q", got.State, got.Message)
			}
			if c.due == 0 != w.Due.IsZero() || c.due != 0 && !w.Due.Equal(t0.Add(c.due)) {
				t.Errorf("due at %s", w.Due)
			}
			if w.Serving() != (c.available == 1) {
				t.Errorf("serving: %v", w.Serving())
			}
		})
	}
}

// A workload that matches the desired state has the state of its own pods; only a change waits for dependencies.
func TestOwnHealthOutranksDependencies(t *testing.T) {
	crash := waiting("CrashLoopBackOff", "back-off")
	for _, c := range []struct {
		name      string
		available int32
		pods      []corev1.Pod
		current   bool
		state     v1alpha1.State
	}{
		{"it runs", 1, nil, true, v1alpha1.Available},
		{"its pods crash", 0, []corev1.Pod{pod(crash)}, true, v1alpha1.Degraded},
		{"a change waits, and it serves as it was", 1, nil, false, v1alpha1.Available},
		{"a change waits, and nothing serves", 0, nil, false, v1alpha1.Waiting},
	} {
		w := status.WorkloadOf(deployment(1, 1, 1, 1, 1, c.available), status.Seen{Pods: c.pods, Now: t0})
		got := status.Component(status.Observed{Name: "glance", Resolved: service(), Workload: w, Current: c.current, BlockedBy: []string{"keystone"}, Now: t0})
		if got.State != c.state {
			t.Errorf("%s: %s (%s)", c.name, got.State, got.Message)
		}
	}
}

// The health of a component and the progress of its update are separate: while one waits, the cloud is not Ready, nor at the new version.
func TestOutdatedComponent(t *testing.T) {
	w := status.WorkloadOf(deployment(1, 1, 1, 1, 1, 1), status.Seen{Now: t0})
	before := v1alpha1.ComponentStatus{Name: "glance", State: v1alpha1.Available, Version: "v0"}
	got := status.Component(status.Observed{
		Name: "glance", Resolved: service(), Workload: w, BlockedBy: []string{"keystone"}, Previous: &before, Now: t0,
	})
	if got.State != v1alpha1.Available || !got.Outdated || got.Message != "waiting for keystone to update" || got.Version != "v0" || got.Settled() {
		t.Errorf("%+v", got)
	}
	all := []v1alpha1.ComponentStatus{got}
	now := conditions(nil, all, 1, t0)
	if meta.IsStatusConditionTrue(now, v1alpha1.ConditionReady) || !meta.IsStatusConditionTrue(now, v1alpha1.ConditionProgressing) {
		t.Errorf("%+v", now)
	}
	if v := status.Version("v0", "v1", all); v != "v0" {
		t.Errorf("the cloud is said to run %s", v)
	}
	if p := status.Phase(all, "v0", "v1"); p != v1alpha1.PhaseUpgrading {
		t.Errorf("the cloud is %s", p)
	}
}

// A component has the state of its worst workload.
func TestTwins(t *testing.T) {
	see := func(available int32, pods ...corev1.Pod) *status.Workload {
		return status.WorkloadOf(deployment(1, 1, 1, 1, 1, available), status.Seen{Pods: pods, Now: t0})
	}
	crashes := see(0, pod(waiting("CrashLoopBackOff", "back-off")))
	for _, c := range []struct {
		name    string
		main    *status.Workload
		copies  []status.Copy
		state   v1alpha1.State
		message string
	}{
		{"all run", see(1), []status.Copy{{Name: "slave", Workload: see(1)}}, v1alpha1.Available, ""},
		{"a copy crashes", see(1), []status.Copy{{Name: "zone2", Workload: see(0)}, {Name: "slave", Workload: crashes}},
			v1alpha1.Degraded, "slave: 0 of 1 pods ready; container glance: CrashLoopBackOff"},
		{"a copy starts", see(1), []status.Copy{{Name: "slave", Workload: see(0)}}, v1alpha1.Progressing, "slave: 0 of 1 pods ready"},
		{"a copy is being made", see(1), []status.Copy{{Name: "slave"}}, v1alpha1.Progressing, "slave: is being created"},
		{"the first workload comes first", see(0), []status.Copy{{Name: "slave", Workload: crashes}}, v1alpha1.Progressing, "0 of 1 pods ready"},
	} {
		got := status.Component(status.Observed{Name: "glance", Resolved: service(), Workload: c.main, Copies: c.copies, Current: true, Now: t0})
		if got.State != c.state || got.Message != c.message {
			t.Errorf("%s: %s %q", c.name, got.State, got.Message)
		}
	}
}

// Replicas that keep terminating do not answer, although they are ready in between.
func TestAnsweringReplicas(t *testing.T) {
	ready := func(s corev1.ContainerStatus) corev1.Pod {
		p := pod(s)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return p
	}
	loops := running(3, 0, ended(1, "", -60*time.Second, -30*time.Second))
	waits := waiting("CrashLoopBackOff", "back-off")
	for _, c := range []struct {
		name      string
		available int32
		pods      []corev1.Pod
		want      int32
	}{
		{"one runs", 1, []corev1.Pod{ready(running(0, 0, nil))}, 1},
		{"one keeps ending, and is ready", 1, []corev1.Pod{ready(loops)}, 0},
		{"one of two keeps ending, and is ready", 2, []corev1.Pod{ready(loops), ready(running(0, 0, nil))}, 1},
		{"one of two keeps ending, and waits", 1, []corev1.Pod{pod(waits), ready(running(0, 0, nil))}, 1},
	} {
		w := status.WorkloadOf(deployment(1, 1, 2, 2, 2, c.available), status.Seen{Pods: c.pods, Now: t0})
		if w.Answering != c.want {
			t.Errorf("%s: %d", c.name, w.Answering)
		}
	}
}

// Ready pods count as started immediately, and serve when they stay ready.
func TestStarted(t *testing.T) {
	d := deployment(1, 1, 2, 2, 2, 0)
	d.Status.ReadyReplicas = 2
	agents := daemon(onHosts, 2, 2, 0)
	agents.Status.NumberReady = 2
	for _, o := range []client.Object{d, agents} {
		if w := status.WorkloadOf(o, status.Seen{Now: t0}); !w.Started() || w.Serving() {
			t.Errorf("%T: started %v, serving %v", o, w.Started(), w.Serving())
		}
	}
	d.Status.ReadyReplicas = 1
	if status.WorkloadOf(d, status.Seen{Now: t0}).Started() || (*status.Workload)(nil).Started() {
		t.Error("not all pods are ready")
	}
}

// The kubelet rejects a pod of a DaemonSet again and again. The record of a rejected pod of a Deployment stays, and another pod takes its place.
func TestRejectedPods(t *testing.T) {
	const why = "Pod was rejected: Node didn't have enough resource: cpu, requested: 100, used: 3950, capacity: 4000"
	rejected := pod(corev1.ContainerStatus{})
	rejected.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: why}
	for want, o := range map[string]client.Object{"OutOfcpu: " + why: daemon(onHosts, 2, 2, 1), "": deployment(1, 1, 2, 2, 2, 1)} {
		got := ""
		if w := status.WorkloadOf(o, status.Seen{Pods: []corev1.Pod{rejected}, Now: t0}); len(w.Pods) > 0 {
			got = w.Pods[0]
		}
		if got != want {
			t.Errorf("%T: %q, want %q", o, got, want)
		}
	}
}

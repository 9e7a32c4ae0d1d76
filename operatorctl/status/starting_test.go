// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/status"
)

// A service whose table changes take long is Progressing, and the message explains it. It does so after a minute, although nothing happens then.
func TestASlowStartIsExplained(t *testing.T) {
	probe := &corev1.Probe{FailureThreshold: 3600, PeriodSeconds: 1}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), StartupProbe: probe}},
		Containers:     []corev1.Container{{Name: "monitor", StartupProbe: probe}},
	}
	runs := func(name string, started bool) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}}
	}
	const count = "0 of 1 pods ready"
	for _, c := range []struct {
		name    string
		init    []corev1.ContainerStatus
		main    []corev1.ContainerStatus
		after   time.Duration
		message string
		due     time.Duration
	}{
		{"at first", nil, []corev1.ContainerStatus{runs("monitor", false)}, 59 * time.Second, count, time.Minute},
		{"after a minute", nil, []corev1.ContainerStatus{runs("monitor", false)}, time.Minute,
			count + "; container monitor is starting, and may take up to 1h0m0s", 0},
		{"once it has started", nil, []corev1.ContainerStatus{runs("monitor", true)}, time.Hour, count, 0},
		{"an init container", []corev1.ContainerStatus{runs("init", true)}, nil, time.Hour,
			count + "; init container init has not finished yet: it may be changing tables of the database", 0},
		{"one that runs on", []corev1.ContainerStatus{runs("side", true)}, []corev1.ContainerStatus{runs("monitor", true)}, time.Hour, count, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pod(corev1.ContainerStatus{})
			p.Spec, p.Status.InitContainerStatuses, p.Status.ContainerStatuses = spec, c.init, c.main
			w := status.WorkloadOf(deployment(1, 1, 1, 1, 1, 0), status.Seen{Pods: []corev1.Pod{p}, Now: t0.Add(c.after)})
			got := status.Component(status.Observed{Name: "glance", Resolved: service(), Workload: w, Current: true, Now: t0.Add(c.after)})
			if got.State != v1alpha1.Progressing || got.Message != c.message {
				t.Errorf("got %s %q", got.State, got.Message)
			}
			if c.due == 0 != w.Due.IsZero() || c.due != 0 && !w.Due.Equal(t0.Add(c.due)) {
				t.Errorf("due at %s", w.Due)
			}
		})
	}
}

// Kubernetes counts a pod once it has been ready for some seconds. If the clock of its node was ahead when it became ready, that takes long.
func TestReadyInTheFutureIsExplained(t *testing.T) {
	p := pod(corev1.ContainerStatus{})
	p.Namespace, p.Name = "onecloud", "default-glance-x7k2p"
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0.Add(8 * time.Hour))}}
	w := status.WorkloadOf(deployment(1, 1, 1, 1, 1, 0), status.Seen{Pods: []corev1.Pod{p}, Now: t0})
	got := status.Component(status.Observed{Name: "glance", Resolved: service(), Workload: w, Current: true, Now: t0})
	if want := "0 of 1 pods ready; pod default-glance-x7k2p counts as ready only from 2026-05-01T20:00:00Z, because the clock of its node was ahead: " +
		"kubectl -n onecloud delete pod default-glance-x7k2p"; got.State != v1alpha1.Progressing || got.Message != want {
		t.Errorf("got %s %q", got.State, got.Message)
	}
}

// The first status after the start of a stopped cloud is from before the operator scaled its workloads up. That is no defect.
func TestAScaledDownServiceIsStarting(t *testing.T) {
	r := service()
	r.Replicas = 1
	for _, w := range []client.Object{deployment(1, 1, 0, 0, 0, 0), members("a", "a", 0, 0)} {
		got := status.Component(status.Observed{Name: "glance", Resolved: r, Workload: status.WorkloadOf(w, status.Seen{}), Current: true, Now: t0})
		if got.State != v1alpha1.Progressing || got.Message != "it is scaled to zero; the operator is starting it" {
			t.Errorf("%T: %s %q", w, got.State, got.Message)
		}
	}
}

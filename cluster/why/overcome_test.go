// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ran sets how long a container has run, and how long its previous run lasted.
func (s *Snapshot) ran(c *corev1.ContainerStatus, since, before time.Duration) {
	started := s.Time.Add(-since)
	c.RestartCount = 3
	c.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error",
		StartedAt: metav1.NewTime(started.Add(-time.Second - before)), FinishedAt: metav1.NewTime(started.Add(-time.Second))}
}

// TestOvercome: minutes after a fault that restarted everything, a container that runs longer than before is no symptom, and its old log no cause.
func TestOvercome(t *testing.T) {
	for _, tt := range []struct {
		name          string
		since, before time.Duration
		well          bool
	}{
		{"runs longer than before", 2 * time.Minute, time.Minute, true},
		{"ends every two minutes", time.Minute, 2 * time.Minute, false},
		{"began a moment ago", 3 * time.Second, time.Second, false},
		{"runs twice as long as before", 40 * time.Second, 20 * time.Second, true},
		{"had run for long", 6 * time.Minute, time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := healthy(t)
			for i := range s.Pods {
				for j := range s.Pods[i].Status.ContainerStatuses {
					s.ran(&s.Pods[i].Status.ContainerStatuses[j], tt.since, tt.before)
				}
				s.Logs = append(s.Logs, Log{Namespace: s.Pods[i].Namespace, Pod: s.Pods[i].Name, Container: "main", Previous: true,
					Lines: []string{"dial tcp 127.0.0.1:2379: connect: connection refused"}})
			}
			r, _ := Diagnose(s, "")
			if tt.well != (r.Healthy && r.Cause == nil && len(r.Others) == 0) {
				t.Errorf("state %q, cause %+v", r.State, r.Cause)
			}
			if !tt.well && !strings.HasSuffix(r.State, "is healthy according to its status, but there are problems") {
				t.Errorf("state %q", r.State)
			}
			if part, _ := Diagnose(s, string(dns)); part.State != "dns has no state of its own" {
				t.Errorf("state %q", part.State)
			}
		})
	}
}

// TestContainerOfAnEvent checks that the finding names the container that the kubelet stopped, and the pod of a program outside the components.
func TestContainerOfAnEvent(t *testing.T) {
	s := healthy(t)
	p := s.addPod("kube-system", "kube-scheduler-n1", "n1", map[string]string{"component": "kube-scheduler", "tier": "control-plane"})
	p.Status.Conditions = nil // it is not ready
	s.Logs = append(s.Logs, Log{Namespace: p.Namespace, Pod: p.Name, Container: "main", Lines: []string{"dial tcp 10.0.0.9:6443: connect: connection refused"}})
	s.Events = append(s.Events, corev1.Event{Type: corev1.EventTypeWarning, Reason: "Unhealthy", Message: "Liveness probe failed: HTTP 500", LastTimestamp: metav1.NewTime(s.Time),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, FieldPath: "spec.containers{scheduler}"}})
	r, _ := Diagnose(s, "")
	all := append(r.Others, r.Consequences...)
	if r.Cause != nil {
		all = append(all, *r.Cause)
	}
	want := map[string]string{"probe-failed": "Container scheduler of pod kube-scheduler-n1 was killed because it did not answer",
		"service-refused": "Pod kube-scheduler-n1 cannot connect to 10.0.0.9:6443"}
	for _, x := range all {
		if what, there := want[x.ID]; there && x.What != what {
			t.Errorf("%s: %q", x.ID, x.What)
		}
		delete(want, x.ID)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}

// TestOneOfTwoDatabaseServers checks that the embedded database counts as running while one of its servers works.
func TestOneOfTwoDatabaseServers(t *testing.T) {
	s := healthy(t)
	s.addPod(s.Namespace, "ocadm-mysql-2-0", "n2", map[string]string{"app": "ocadm-mysql"})
	for _, want := range []string{"A server of the embedded database does not run: pod ocadm-mysql-2-0", "The embedded database does not run"} {
		s.ill("ocadm-mysql-2-0", "", "")
		r, _ := Diagnose(s, "")
		if r.Cause == nil || r.Cause.ID != "database-down" || r.Cause.What != want {
			t.Errorf("%+v, want %q", r.Cause, want)
		}
		s.ill("ocadm-mysql-0", "", "")
	}
}

// TestLeftVolume: after its claim was deleted, the volume of a node that is gone stays, and the new claim of that name has another volume.
func TestLeftVolume(t *testing.T) {
	for _, c := range provocations() {
		if c.id != "volume-node-gone" {
			continue
		}
		for _, phase := range []corev1.PersistentVolumePhase{corev1.VolumeReleased, corev1.VolumeFailed} {
			ill, s := healthy(t), healthy(t)
			c.change(ill)
			v := ill.Volumes[len(ill.Volumes)-1]
			v.Status.Phase = phase
			s.Volumes = append(s.Volumes, v)
			s.claim("data", corev1.ClaimBound, new("local-path"))
			if r, _ := Diagnose(s, ""); r.Cause != nil || len(r.Others) > 0 {
				t.Errorf("%s: %+v %+v", phase, r.Cause, r.Others)
			}
		}
		return
	}
	t.Error("nothing provokes volume-node-gone")
}

// TestDeletedDNS: without CoreDNS, the host names in a configuration are not to blame.
func TestDeletedDNS(t *testing.T) {
	s := healthy(t)
	s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool { return p.Labels["k8s-app"] == "kube-dns" })
	if r, _ := Diagnose(s, ""); r.Cause != nil {
		t.Errorf("another DNS may run: %+v", r.Cause)
	}
	s.logs("default-region", "dial tcp: lookup ocadm-mysql.onecloud.svc on 10.96.0.10:53: read: connection refused")
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "dns-missing" || !strings.Contains(r.Cause.Remedy, "--config /etc/ocadm/kubeadm.yaml") {
		t.Errorf("%+v", r.Cause)
	}
}

// TestMissingAccount checks that the advice names the commands that create an account: the operator may not, and an update of the cloud changes nothing.
func TestMissingAccount(t *testing.T) {
	s := healthy(t)
	s.podEvent("default-region", "FailedCreate", `Error creating: pods "default-region-x" is forbidden: error looking up service account onecloud/onecloud-region: `+
		`serviceaccount "onecloud-region" not found`)
	r, _ := Diagnose(s, "")
	if r.Cause == nil || r.Cause.ID != "api-token-missing" || !strings.Contains(r.Cause.Remedy, "ocadm init phase operator; ") ||
		!strings.HasSuffix(r.Cause.Remedy, "ocadm component restart region") {
		t.Errorf("%+v", r.Cause)
	}
}

// TestOwnClockAhead checks that the events of the cluster count although the clock of this machine is wrong.
func TestOwnClockAhead(t *testing.T) {
	s := healthy(t)
	s.podEvent("default-glance", "FailedMount", `MountVolume.SetUp failed for volume "pvc-1": mount failed: exit status 32`)
	s.Time = s.Time.Add(20 * time.Minute)
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "mount-failed" {
		t.Errorf("%+v", r.Cause)
	}
}

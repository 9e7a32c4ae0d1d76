// SPDX-License-Identifier: Apache-2.0

package nodecerts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/test/require"
)

var now = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

func cloud() *v1alpha1.OnecloudCluster {
	return &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default", UID: "u"}}
}

func report(renewAt time.Time, unable string) certreport.Report {
	return certreport.Report{Time: now, Certificates: []certreport.Certificate{{Name: "apiserver", Ends: renewAt.Add(6 * time.Hour), RenewAt: renewAt, Unable: unable}}}
}

func renewed(phase v1alpha1.OperationPhase, end time.Time) *v1alpha1.OnecloudOperation {
	return &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.NewTime(end)},
		Spec:   v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: v1alpha1.ActionRenewCertificates},
		Status: v1alpha1.OnecloudOperationStatus{Phase: phase, End: metav1.NewTime(end)}}
}

// attempts returns failed renewals that were due 30 hours ago, with these numbers.
func attempts(numbers ...int) (out []*v1alpha1.OnecloudOperation) {
	for _, n := range numbers {
		o := renewed(v1alpha1.OperationFailed, now.Add(-2*time.Hour))
		o.Name = fmt.Sprintf("default-renewcertificates-%d-%d", now.Add(-30*time.Hour).Unix(), n)
		out = append(out, o)
	}
	return out
}

func TestDecide(t *testing.T) {
	failed := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "Late"}}}}
	complete := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}}
	problem := report(now.Add(time.Hour), "")
	problem.Problem = "Late"
	old := report(now.Add(24*time.Hour), "")
	old.Time = now.Add(-lookEvery)
	kubelets := report(now.Add(-time.Minute), "its kubelet has not renewed it")
	before := kubelets
	before.Time = now.Add(-time.Hour)
	ahead := report(now.Add(24*time.Hour), "")
	ahead.Time = now.Add(365 * 24 * time.Hour)
	for _, c := range []struct {
		name               string
		in                 seen
		look, read, forget string
		renew              string
		next               time.Duration
	}{
		{"nothing is known", seen{nodes: []string{"a"}, ready: []string{"a"}}, "a", "", "", "", 0},
		{"a node that is not Ready", seen{nodes: []string{"a"}}, "", "", "", "", 0},
		{"a look runs", seen{nodes: []string{"a"}, ready: []string{"a"}, looks: map[string]*batchv1.Job{"a": {}}}, "", "", "", "", 0},
		{"a look has ended", seen{nodes: []string{"a"}, ready: []string{"a"}, looks: map[string]*batchv1.Job{"a": complete}}, "", "a", "", "", 0},
		{"a look has failed", seen{nodes: []string{"a"}, ready: []string{"a"}, looks: map[string]*batchv1.Job{"a": failed}}, "", "a", "", "", 0},
		{"a look has failed, as is known", seen{nodes: []string{"a"}, ready: []string{"a"}, looks: map[string]*batchv1.Job{"a": failed},
			reports: map[string]certreport.Report{"a": problem}}, "", "", "", "", time.Hour},
		{"and its Job is gone", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": problem}}, "a", "", "", "", time.Hour},
		{"a report is old", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": old}}, "a", "", "", "", 24 * time.Hour},
		{"a report of a clock that was ahead", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": ahead}}, "a", "", "", "", 24 * time.Hour},
		{"one has failed by a clock that was ahead", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now.Add(-3*time.Hour), "")},
			operations: []*v1alpha1.OnecloudOperation{renewed(v1alpha1.OperationFailed, now.Add(365*24*time.Hour))}}, "", "", "", "default-renewcertificates-1798848245-0", lookEvery},
		{"a node is gone", seen{reports: map[string]certreport.Report{"b": old}}, "", "", "b", "", 0},
		{"valid for long", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now.Add(48*time.Hour), "")}}, "", "", "", "", lookEvery},
		{"soon", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now.Add(time.Hour), "")}}, "", "", "", "", time.Hour},
		{"now", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now, "")}}, "", "", "", "default-renewcertificates-1798859045-0", lookEvery},
		{"now, on a node that is not Ready", seen{nodes: []string{"a"}, reports: map[string]certreport.Report{"a": report(now, "")}}, "", "", "", "", 0},
		{"now, and it cannot be", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now, "no key")}}, "", "", "", "", lookEvery},
		{"its kubelet should have renewed it by then", seen{nodes: []string{"a"}, ready: []string{"a"},
			reports: map[string]certreport.Report{"a": report(now.Add(time.Hour), "its kubelet has not renewed it")}}, "", "", "", "", time.Hour},
		{"its kubelet may have renewed it since", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": before}}, "a", "", "", "", 0},
		{"its kubelet has not renewed it", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": kubelets}}, "", "", "", "", lookEvery},
		{"one runs", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now, "")},
			operations: []*v1alpha1.OnecloudOperation{renewed(v1alpha1.OperationRunning, time.Time{})}}, "", "", "", "", lookEvery},
		{"one has failed a moment ago", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now.Add(-time.Hour), "")},
			operations: []*v1alpha1.OnecloudOperation{renewed(v1alpha1.OperationFailed, now.Add(-time.Minute))}}, "", "", "", "", 59 * time.Minute},
		{"one has failed some time ago", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now.Add(-3*time.Hour), "")},
			operations: []*v1alpha1.OnecloudOperation{renewed(v1alpha1.OperationFailed, now.Add(-2*time.Hour))}}, "", "", "", "default-renewcertificates-1798848245-0", lookEvery},
		{"a damaged one, whose times are unknown, has failed a moment ago", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{
			"a": {Time: now, Certificates: []certreport.Certificate{{Name: "apiserver"}}}},
			operations: []*v1alpha1.OnecloudOperation{renewed(v1alpha1.OperationFailed, now.Add(-time.Minute))}}, "", "", "", "", 59 * time.Minute},
		{"the first attempts are not kept", seen{nodes: []string{"a"}, ready: []string{"a"}, reports: map[string]certreport.Report{"a": report(now.Add(-30*time.Hour), "")},
			operations: attempts(9, 7, 28)}, "", "", "", "default-renewcertificates-1798751045-29", lookEvery},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.now, c.in.cloud = now, cloud()
			d := decide(c.in)
			name := ""
			if d.renew != nil {
				name = d.renew.Name
			}
			if strings.Join(d.look, ",") != c.look || strings.Join(d.read, ",") != c.read || strings.Join(d.forget, ",") != c.forget || name != c.renew || d.next != c.next {
				t.Errorf("look %v, read %v, forget %v, renew %q, next %s", d.look, d.read, d.forget, name, d.next)
			}
		})
	}
}

// A user's text in an operation must not reach the Job, and the Job must see no more of the node than it needs.
func TestJobs(t *testing.T) {
	o := renewed(v1alpha1.OperationRunning, now)
	o.Spec.Requester, o.Spec.Timeout, o.Annotations = "requester; rm -rf /", "17m", map[string]string{"x": "annotated"}
	o.Spec.RenewCertificates = &v1alpha1.RenewCertificatesParameters{All: true}
	look, renew := lookJob(cloud(), "node1", "image:1"), renewJob(cloud(), o, "node1", "image:1")
	raw, err := json.Marshal(renew)
	require.NoError(t, err)
	for _, word := range []string{"rm -rf", "17m", "annotated"} {
		if strings.Contains(string(raw), word) {
			t.Errorf("the Job has %q of the operation", word)
		}
	}
	if want := []string{"operator", "node-certificates", "--report=/dev/termination-log", "--renew", "--since=2027-01-02T03:04:05Z"}; !slices.Equal(renew.Spec.Template.Spec.Containers[0].Args, want) {
		t.Errorf("%v", renew.Spec.Template.Spec.Containers[0].Args)
	}
	for name, c := range map[string]struct {
		job    *batchv1.Job
		mounts []string
	}{
		"look":  {look, []string{"/etc/kubernetes ro", "/var/lib/kubelet/pki ro"}},
		"renew": {renew, []string{"/etc/kubernetes rw", "/var/lib/kubelet/pki rw", "/run/containerd/containerd.sock rw", "/run/ocadm.lock rw"}},
	} {
		pod := c.job.Spec.Template.Spec
		var mounts []string
		for _, m := range pod.Containers[0].VolumeMounts {
			mode := "rw"
			if m.ReadOnly {
				mode = "ro"
			}
			mounts = append(mounts, m.MountPath+" "+mode)
		}
		s := pod.Containers[0].SecurityContext
		if !slices.Equal(mounts, c.mounts) || pod.HostPID || s.Privileged != nil || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 ||
			!*s.ReadOnlyRootFilesystem || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != Account {
			t.Errorf("%s: mounts %v, %+v", name, mounts, pod)
		}
		if at := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0]; at.Key != "metadata.name" || !slices.Equal(at.Values, []string{"node1"}) {
			t.Errorf("%s runs on %v", name, at)
		}
	}
}

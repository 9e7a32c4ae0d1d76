// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/test/require"
)

// scheduled gives the cloud a schedule: the spec, and what the operator renders from it.
func (fx *fixture) scheduled() {
	fx.Helper()
	cloud := &v1alpha1.OnecloudCluster{}
	require.NoError(fx, fx.client.Get(fx.Context(), key, cloud))
	cloud.Spec.Backup.Disable = new(false)
	require.NoError(fx, fx.client.Update(fx.Context(), cloud))
}

func (fx *fixture) rendered() {
	fx.Helper()
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "backup"}}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyOnFailure, ServiceAccountName: "onecloud-backup",
		Containers: []corev1.Container{{Name: "backup", Image: "ocadm:v1", Args: []string{"cluster", "backup", "run", "--dir=/backup"}}}}}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c-backup"}}
	cron.Spec.JobTemplate.Spec = batchv1.JobSpec{BackoffLimit: new(int32(2)), Template: t}
	require.NoError(fx, fx.client.Create(fx.Context(), cron))
}

func asAsked(o *v1alpha1.OnecloudOperation) { o.Spec.Action = v1alpha1.ActionBackup }

// TestAskedBackup: without a schedule it is rejected immediately; with one it runs in a Job like the schedule's, and others wait for it.
func TestAskedBackup(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return append(outside(), Action{Name: v1alpha1.ActionCheck, Timeout: time.Hour, Steps: []Step{}})
	})
	fx.create("refused", asAsked)
	o := fx.until("refused", v1alpha1.OperationFailed)
	if len(o.Status.Findings) != 1 || o.Status.Findings[0].Code != "OCA-7423" || !strings.Contains(o.Status.Findings[0].Remedy, "ocadm cluster backup schedule") || o.Status.End.IsZero() {
		t.Errorf("%+v", o.Status)
	}
	fx.scheduled()
	fx.create("asked", asAsked)
	if o := fx.until("asked", v1alpha1.OperationPending); o.Status.Message != "waiting for CronJob c-backup" {
		t.Error(o.Status.Message)
	}
	fx.rendered()
	fx.until("asked", v1alpha1.OperationPlanning)
	fx.create("next")
	fx.until("next", v1alpha1.OperationPending)
	job := fx.jobOf("asked")
	pod := job.Spec.Template
	if want := int64((BackupTimeout + spare).Seconds()); *job.Spec.ActiveDeadlineSeconds != want {
		t.Errorf("it may take %d s, not %d, which the command of the schedule may", *job.Spec.ActiveDeadlineSeconds, want)
	}
	if *job.Spec.BackoffLimit != 0 || *job.Spec.TTLSecondsAfterFinished != 600 || pod.Spec.RestartPolicy != corev1.RestartPolicyNever || pod.Labels["app"] != "backup" ||
		pod.Labels[v1alpha1.LabelOperation] != "asked" || pod.Labels[v1alpha1.LabelManagedBy] == "" || pod.Spec.ServiceAccountName != "onecloud-backup" ||
		!slices.Equal(pod.Spec.Containers[0].Args, []string{"cluster", "backup", "run", "--dir=/backup", "--operation=asked", "--timeout=7h0m0s"}) || !metav1.IsControlledBy(job, fx.get("asked")) {
		t.Errorf("%+v", job.Spec)
	}
	fx.announce("asked") // as its pod does
	o = fx.until("asked", v1alpha1.OperationRunning)
	if o.Status.Start.IsZero() || o.Status.Message != "" {
		t.Errorf("%+v", o.Status)
	}
	o.Status.Phase = v1alpha1.OperationSucceeded
	require.NoError(t, fx.client.Status().Update(t.Context(), o))
	fx.until("next", v1alpha1.OperationSucceeded)
}

// TestAskedBackupLost: a Job that fails before or after its pod has begun ends the operation with its reason, and is recorded among the backups. One that
// is cancelled before its pod has begun ends immediately.
func TestAskedBackupLost(t *testing.T) {
	fx := newFixture(t, func(*fixture) []Action { return outside() })
	fx.scheduled()
	fx.rendered()
	for name, begun := range map[string]bool{"early": false, "late": true} {
		fx.create(name, asAsked, func(o *v1alpha1.OnecloudOperation) { o.CreationTimestamp.Time = o.CreationTimestamp.Add(-time.Hour) }) // records have whole seconds
		fx.until(name, v1alpha1.OperationPlanning)
		if begun {
			fx.announce(name)
			fx.until(name, v1alpha1.OperationRunning)
		}
		job := fx.jobOf(name)
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "DeadlineExceeded", Message: "too long"}}
		require.NoError(t, fx.client.Status().Update(t.Context(), job))
		o := fx.until(name, v1alpha1.OperationFailed)
		if len(o.Status.Findings) != 1 || o.Status.Findings[0].Code != "OCA-7624" || !strings.Contains(o.Status.Message, "too long") {
			t.Errorf("%+v", o.Status)
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		h, err := archive.History(t.Context(), fx.client, "n")
		if err == nil && len(h) == 2 && strings.Contains(h[0].Error, "too long") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v %v", h, err)
		}
	}
	fx.create("unwanted", asAsked)
	fx.until("unwanted", v1alpha1.OperationPlanning)
	fx.jobOf("unwanted")
	fx.control("unwanted", v1alpha1.OperationCancel)
	fx.until("unwanted", v1alpha1.OperationCancelled)
}

// jobOf waits for the Job of an operation.
func (fx *fixture) jobOf(name string) *batchv1.Job {
	fx.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		job := &batchv1.Job{}
		err := fx.client.Get(fx.Context(), client.ObjectKey{Namespace: "n", Name: name}, job)
		if err == nil {
			return job
		}
		if time.Now().After(deadline) {
			fx.Fatal(err)
		}
	}
}

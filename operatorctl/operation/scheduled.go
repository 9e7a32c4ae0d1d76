// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

// An operation with action Backup and no place requests the scheduled backup of the cloud now. The operator makes its Job from the template of the
// schedule, which has the place, the keys and the account: docs/decisions/0062.

// asked reports whether an operation requests the scheduled backup.
func asked(o *v1alpha1.OnecloudOperation) bool {
	return o.Spec.Action == v1alpha1.ActionBackup && o.Spec.Backup == nil
}

// Unscheduled returns why a cloud's backup cannot be requested, or nil if it can. It is pure.
func Unscheduled(cloud *v1alpha1.OnecloudCluster) error {
	if off := cloud.Spec.Backup.Disable; off != nil && !*off {
		return nil
	}
	return finding.New("OCA-7423", "The cloud has no backup schedule", "no place for backups is configured: spec.backup of cloud "+cloud.Name+" is disabled",
		"ocadm cluster backup schedule --at @daily --recipient age1…, then try again; or ocadm cluster backup create --to PLACE")
}

// scheduleOf returns the key of the CronJob that backs a cloud up, as rendered for component backup.
func scheduleOf(o *v1alpha1.OnecloudOperation) client.ObjectKey {
	return client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Cloud + "-backup"}
}

// jobNow returns the Job of an operation that requests a backup: the schedule's Job, with one pod that takes this operation. It is pure.
func jobNow(o *v1alpha1.OnecloudOperation, schedule *batchv1.CronJob, a Action) *batchv1.Job {
	from := schedule.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: labels.Merge(from.Labels, labelsOf(o)), Annotations: from.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, v1alpha1.GroupVersion.WithKind(v1alpha1.OperationKind))}},
		Spec: from.Spec,
	}
	job.Spec.BackoffLimit, job.Spec.PodFailurePolicy = new(int32(0)), nil // an operation ends only once; another backup needs another request
	job.Spec.ActiveDeadlineSeconds = new(int64((a.timeout(o) + spare).Seconds()))
	job.Spec.TTLSecondsAfterFinished = new(int32(keepJob.Seconds()))
	pod := &job.Spec.Template
	pod.Labels, pod.Spec.RestartPolicy = labels.Merge(pod.Labels, labelsOf(o)), corev1.RestartPolicyNever
	main := &pod.Spec.Containers[0]
	main.Args = append(main.Args, "--operation="+o.Name, "--timeout="+a.timeout(o).String())
	return job
}

// backupNow returns the Job of an operation that requests a backup, or nil if the schedule does not exist yet.
func (j *jobs) backupNow(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, a Action) (*batchv1.Job, error) {
	if err := Unscheduled(cloud); err != nil {
		return nil, err
	}
	if j.WithoutJobs {
		return nil, finding.New("OCA-7424", "The operator does not create Jobs", "it is not allowed to create Jobs in namespace "+o.Namespace+", or its own image is unknown",
			"ocadm operator namespace add "+o.Namespace+", then try again; or ocadm cluster backup create --to PLACE")
	}
	schedule := &batchv1.CronJob{}
	if found, err := kube.Find(ctx, j.Client, scheduleOf(o), schedule, "the schedule of backups"); !found {
		return nil, err // the schedule was enabled a moment ago
	}
	return jobNow(o, schedule, a), nil
}

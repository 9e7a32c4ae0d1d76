// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

type jobs struct{ *store }

// inJob reports whether the steps of an operation run in a Job.
func (j *jobs) inJob(a Action, o *v1alpha1.OnecloudOperation) bool {
	return a.Job != nil && j.JobImage != "" || asked(o)
}

// follow manages the Job of an operation that should run: it creates the Job, records lost pods, and ends an operation whose Job has failed.
func (j *jobs) follow(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, action Action) error {
	if j.WithoutJobs {
		return j.start(ctx, o, cloud, action)
	}
	job := &batchv1.Job{}
	there, err := kube.Find(ctx, j.Client, client.ObjectKeyFromObject(o), job, "the Job of operation "+o.Name)
	if err != nil {
		return err
	}
	if there && !metav1.IsControlledBy(job, o) {
		return j.end(ctx, o, ending{v1alpha1.OperationFailed, "another Job has the name of the operation"})
	}
	var pods corev1.PodList
	if there {
		if err := j.Client.List(ctx, &pods, client.InNamespace(o.Namespace), client.MatchingLabels{v1alpha1.LabelOperation: o.Name}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing the pods of operation %s: %w", o.Name, err)
		}
	}
	complete, failed := Ended(job)
	if there && failed == "" && (!complete || o.Status.Runner != nil) && !(cancelled(o) && !taken(o)) {
		return j.note(ctx, o, job, pods.Items)
	}
	if !there && !cancelled(o) && !paused(o) {
		return j.start(ctx, o.DeepCopy(), cloud, action)
	}
	now, err := j.unfinished(ctx, o)
	if now == nil || err != nil {
		return err
	}
	switch {
	case failed != "":
		// The caches of Jobs and pods are updated separately: only the API server's current answer is sure to show how the last pod ended.
		if err := j.Direct.List(ctx, &pods, client.InNamespace(o.Namespace), client.MatchingLabels{v1alpha1.LabelOperation: o.Name}); err != nil {
			return fmt.Errorf("listing the pods of operation %s: %w", o.Name, err)
		}
		return j.fail(ctx, now, cloud, failed, pods.Items)
	case cancelled(now):
		return j.end(ctx, now, ending{v1alpha1.OperationCancelled, errCancelled.Error()})
	case paused(now):
		return j.rest(ctx, now)
	case there: // it was paused, and should continue
		return j.deleteJob(ctx, now)
	}
	return j.start(ctx, now, cloud, action)
}

// start creates the Job of an operation, whose turn counts from then on. The cache may be stale: then the API server rejects the write, and the change
// triggers another reconcile.
func (j *jobs) start(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, action Action) error {
	job, err := j.jobFor(ctx, o, cloud, action)
	if l := finding.Of(err); len(l) > 0 {
		return j.refuse(ctx, o, l)
	}
	if err != nil {
		return err
	}
	if job == nil {
		return j.say(ctx, o, v1alpha1.OperationPending, "waiting for CronJob "+scheduleOf(o).Name)
	}
	if err := j.take(ctx, o, cloud); err != nil {
		return err
	}
	written, err := j.write(ctx, o, func(s *v1alpha1.OnecloudOperationStatus) {
		if s.Phase == v1alpha1.OperationPaused { // a resumed operation gets its full time again
			s.RanSeconds = 0
		}
		if !s.Phase.Active() || s.Phase == v1alpha1.OperationPaused {
			s.Phase = v1alpha1.OperationPlanning
		}
		if !strings.HasPrefix(s.Message, noJob) { // the reason stays until the Job exists
			s.Message = waitsForPod
		}
		disown(s)
	})
	if err != nil || !written {
		return err
	}
	err = j.Client.Create(ctx, job, client.FieldOwner(v1alpha1.ManagerOperator))
	switch {
	case apierrors.IsAlreadyExists(err): // the cache does not show it yet
		return nil
	case err != nil:
		return errors.Join(fmt.Errorf("creating the Job of operation %s: %w", o.Name, err), j.say(ctx, o, o.Status.Phase, noJob+err.Error()))
	}
	if err := j.say(ctx, o, o.Status.Phase, waitsForPod); err != nil {
		return err
	}
	j.Events.Eventf(o, nil, corev1.EventTypeNormal, "Started", o.Spec.Action, "%s runs in Job %s", o.Spec.Action, o.Name)
	j.Log.Info("operation runs in a Job", "operation", o.Name, "namespace", o.Namespace, "cluster", o.Spec.Cloud, "action", o.Spec.Action)
	return nil
}

// jobFor returns the Job of an operation, or nil if its CronJob does not exist yet.
func (j *jobs) jobFor(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, action Action) (*batchv1.Job, error) {
	if asked(o) {
		return j.backupNow(ctx, o, cloud, action)
	}
	how, err := action.Job(ctx, o)
	if err != nil {
		return nil, err
	}
	return jobOf(o, cloud, how, j.JobImage, action.timeout(o)), nil
}

// refuse fails an operation that cannot begin.
func (j *jobs) refuse(ctx context.Context, o *v1alpha1.OnecloudOperation, why finding.List) error {
	now := o.DeepCopy()
	err := j.record(now).Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End, s.Findings = v1alpha1.OperationFailed, why[0].Code+" "+why[0].Error(), metav1.Now(), Findings(why)
	})
	if err == nil {
		j.announce(o, now.Status)
	}
	return err
}

// end ends an operation that needs no further work, and deletes its Job.
func (j *jobs) end(ctx context.Context, o *v1alpha1.OnecloudOperation, how ending) error {
	if err := j.deleteJob(ctx, o); err != nil {
		return err
	}
	err := j.record(o.DeepCopy()).Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Phase, s.Message, s.End = how.phase, how.message, metav1.Now()
		disown(s)
	})
	return errors.Join(err, j.release(ctx, o))
}

func (j *jobs) deleteJob(ctx context.Context, o *v1alpha1.OnecloudOperation) error {
	if !j.inJob(j.action(o), o) || j.WithoutJobs {
		return nil
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	err := j.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Job of operation %s: %w", o.Name, err)
	}
	return nil
}

// fail ends an operation whose Job has failed: its pods ended or were lost before the operation ended.
func (j *jobs) fail(ctx context.Context, o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, why string, pods []corev1.Pod) error {
	all, _ := seen(o, pods)
	cause := why
	if len(all) > 0 {
		cause += "; " + all[len(all)-1]
	}
	f := finding.New("OCA-7624", "The Job of operation "+o.Name+" failed", cause,
		"check its node and its image, then try again. All pods: ocadm operation show "+o.Name+" -o yaml")
	if err := j.unmade(ctx, o, cloud, "its Job failed: "+cause); err != nil {
		return err
	}
	return j.record(o.DeepCopy()).Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		setLost(s, all)
		disown(s)
		failRunning(s, cause)
		s.Findings = Findings(finding.List{f})
		s.Phase, s.Message, s.End = v1alpha1.OperationFailed, "its Job failed: "+cause, metav1.Now()
	})
}

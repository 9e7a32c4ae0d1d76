// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Messages of an operation that has no pod yet.
const (
	waitsForPod = "waiting for the pod of its Job"
	noJob       = "its Job cannot be created: "
	// noPod is how long Kubernetes may take to create the pod of a Job.
	noPod = 30 * time.Second
)

// again returns when to look again at an operation that has no pod yet, unless something is due earlier: a missing pod causes no event.
func (j *jobs) again(a Action, o *v1alpha1.OnecloudOperation, next time.Duration) time.Duration {
	if j.WithoutJobs || !j.inJob(a, o) || taken(o) || next > 0 && next < noPod {
		return next
	}
	return noPod
}

// podless returns a message if Kubernetes is late to create a Job's pod, or "". It is pure.
func podless(o *v1alpha1.OnecloudOperation, job *batchv1.Job, pods int, now time.Time) string {
	if pods > 0 || taken(o) || now.Sub(job.CreationTimestamp.Time) < noPod {
		return ""
	}
	return "Kubernetes has not created a pod: kubectl -n " + job.Namespace + " describe job " + job.Name
}

// note records the lost pods, and what a pending pod waits for.
func (j *jobs) note(ctx context.Context, o *v1alpha1.OnecloudOperation, job *batchv1.Job, pods []corev1.Pod) error {
	all, waits := seen(o, pods)
	waits = cmp.Or(waits, podless(o, job, len(pods), time.Now()))
	if slices.Equal(all, lostOf(&o.Status)) && (waits == "" || waits == o.Status.Message) {
		return nil
	}
	for _, l := range all[len(lostOf(&o.Status)):] {
		j.Events.Eventf(o, nil, corev1.EventTypeWarning, "PodLost", o.Spec.Action, "%s", status.Note(l))
	}
	return j.record(o.DeepCopy()).Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		setLost(s, all)
		s.Message = cmp.Or(waits, s.Message)
	})
}

func lostOf(s *v1alpha1.OnecloudOperationStatus) []string {
	if s.Worker == nil {
		return nil
	}
	return s.Worker.Lost
}

func setLost(s *v1alpha1.OnecloudOperationStatus, all []string) {
	if len(all) == 0 {
		return
	}
	s.Worker = cmp.Or(s.Worker, &v1alpha1.OperationWorker{})
	s.Worker.Lost = all
}

// seen returns the lost pods of an operation, known ones first, and what a pending pod waits for. It is pure.
func seen(o *v1alpha1.OnecloudOperation, pods []corev1.Pod) (lost []string, waits string) {
	lost = slices.Clone(lostOf(&o.Status))
	pods = slices.SortedFunc(slices.Values(pods), ByAge)
	for i := range pods {
		p := &pods[i]
		how := judgePod(p)
		switch {
		case p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded:
			lost = addLost(lost, p.Name, cmp.Or(condition(p, corev1.DisruptionTarget, corev1.ConditionTrue), "it was deleted"))
		case p.Status.Phase == corev1.PodFailed:
			lost = addLost(lost, p.Name, how.why)
		case p.Status.Phase == corev1.PodPending && !taken(o):
			if how.why != string(corev1.PodPending) && how.why != "ContainerCreating" {
				waits = "waiting for pod " + p.Name + ": " + how.why
			}
		}
	}
	return lost, waits
}

// ByAge compares pods by age, oldest first.
func ByAge(a, b corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func addLost(lost []string, pod, why string) []string {
	if slices.ContainsFunc(lost, func(l string) bool { return strings.HasPrefix(l, pod+": ") }) {
		return lost
	}
	return append(lost, pod+": "+why)
}

// condition returns the reason of a pod's condition, or "" without it: of DisruptionTarget why Kubernetes ended it, of PodScheduled why no node takes it.
func condition(p *corev1.Pod, kind corev1.PodConditionType, is corev1.ConditionStatus) string {
	c := lists.First(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == is })
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

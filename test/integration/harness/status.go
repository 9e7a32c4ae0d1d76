// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The final statuses that controllers and kubelets would report, or the initial ones for a held object.

// DeploymentStatus returns the status of a Deployment whose pods are ready and have been so for long enough to be available.
func DeploymentStatus(d *appsv1.Deployment, ready, available bool) appsv1.DeploymentStatus {
	want := ptr.Deref(d.Spec.Replicas, 1)
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: want, UpdatedReplicas: want}
	is := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable"}
	progress := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated"}
	if ready || want == 0 {
		status.ReadyReplicas = want
	}
	if ready && available || want == 0 {
		status.AvailableReplicas = want
		is.Status, is.Reason, progress.Reason = corev1.ConditionTrue, "MinimumReplicasAvailable", "NewReplicaSetAvailable"
	} else {
		status.UnavailableReplicas = want
	}
	for _, c := range []appsv1.DeploymentCondition{is, progress} {
		c.LastUpdateTime, c.LastTransitionTime = Now(), Now()
		status.Conditions = append(status.Conditions, c)
	}
	return status
}

func statefulSetStatus(s *appsv1.StatefulSet, held bool) appsv1.StatefulSetStatus {
	want := ptr.Deref(s.Spec.Replicas, 1)
	revision := s.Name + "-instant"
	status := appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: want, UpdatedReplicas: want, CurrentReplicas: want,
		CurrentRevision: revision, UpdateRevision: revision, CollisionCount: ptr.To(int32(0))}
	if !held {
		status.ReadyReplicas, status.AvailableReplicas = want, want
	}
	return status
}

// DaemonSetStatus returns the status of a DaemonSet with a pod on each of the given number of nodes.
func DaemonSetStatus(d *appsv1.DaemonSet, nodes int32, held bool) appsv1.DaemonSetStatus {
	status := appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, DesiredNumberScheduled: nodes, CurrentNumberScheduled: nodes,
		UpdatedNumberScheduled: nodes}
	if held {
		status.NumberUnavailable = nodes
		return status
	}
	status.NumberReady, status.NumberAvailable = nodes, nodes
	return status
}

func jobStatus(j *batchv1.Job, held bool, now metav1.Time) batchv1.JobStatus {
	if held {
		return batchv1.JobStatus{StartTime: &now, Active: 1, Ready: ptr.To(int32(0)), Terminating: ptr.To(int32(0))}
	}
	return batchv1.JobStatus{
		StartTime: &now, CompletionTime: &now, Succeeded: ptr.Deref(j.Spec.Completions, 1), Ready: ptr.To(int32(0)), Terminating: ptr.To(int32(0)),
		UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
		Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, Reason: "CompletionsReached", LastProbeTime: now, LastTransitionTime: now},
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, Reason: "CompletionsReached", LastProbeTime: now, LastTransitionTime: now},
		},
	}
}

func jobDone(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

func podStatus(p *corev1.Pod, held bool, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, HostIP: "127.0.0.1", PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}}
	ready, phaseReason := corev1.ConditionTrue, ""
	if p.Spec.RestartPolicy != corev1.RestartPolicyAlways && !held {
		status.Phase, ready, phaseReason = corev1.PodSucceeded, corev1.ConditionFalse, "PodCompleted"
	}
	if held {
		status.Phase, ready, phaseReason = corev1.PodPending, corev1.ConditionFalse, "ContainersNotReady"
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
		if kind == corev1.ContainersReady || kind == corev1.PodReady {
			condition.Status, condition.Reason = ready, phaseReason
		}
		status.Conditions = append(status.Conditions, condition)
	}
	for _, container := range p.Spec.Containers {
		entry := corev1.ContainerStatus{Name: container.Name, Image: container.Image, Ready: ready == corev1.ConditionTrue}
		switch status.Phase {
		case corev1.PodRunning:
			entry.Started, entry.State.Running = ptr.To(true), &corev1.ContainerStateRunning{StartedAt: now}
		case corev1.PodSucceeded:
			entry.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
		default:
			entry.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, entry)
	}
	return status
}

func claimStatus(claim *corev1.PersistentVolumeClaim, held bool) corev1.PersistentVolumeClaimStatus {
	if held {
		return corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	}
	return corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests}
}

// Now returns the current time for a status, in whole seconds as the API stores it.
func Now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

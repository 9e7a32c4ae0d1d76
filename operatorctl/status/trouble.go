// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
)

// hopeless lists the waiting reasons that do not go away by themselves.
var hopeless = []string{
	kube.CrashLoop, "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff",
	"InvalidImageName", "RunContainerError", "OOMKilled", "Unschedulable",
}

// Trouble returns why a pod does not run, "" if it runs or is starting. It does not name the pod: the pods of a workload fail alike.
func Trouble(p corev1.Pod, now time.Time) string {
	if p.DeletionTimestamp != nil {
		return ""
	}
	if words := unschedulable(p); words != "" {
		return words
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if loops, _ := kube.Looping(s, now); loops {
			return ended(s)
		}
		w := s.State.Waiting
		if w == nil || !slices.Contains(hopeless, w.Reason) {
			continue
		}
		what := w.Reason
		if w.Message != "" {
			what += ": " + w.Message
		}
		return fmt.Sprintf("container %s: %s", s.Name, what)
	}
	return ""
}

// unschedulable returns the scheduler's message for a pod that fits on no node.
func unschedulable(p corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// looping describes the containers of a pod that keep terminating. due is the earliest time at which one of them that runs now will have run long enough
// not to count; zero if none runs.
func looping(p corev1.Pod, now time.Time) (words []string, due time.Time) {
	if p.DeletionTimestamp != nil {
		return nil, due
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		loops, until := kube.Looping(s, now)
		if !loops {
			continue
		}
		words = append(words, ended(s))
		due = wait.Earliest(due, until)
	}
	return words, due
}

// LastWords returns the end of the log of a container that keeps terminating and waits for its next start, "" if there is none.
func LastWords(p corev1.Pod) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if last := s.LastTerminationState.Terminated; p.DeletionTimestamp == nil && s.State.Waiting != nil && last != nil {
			return last.Message
		}
		if last := s.State.Terminated; p.DeletionTimestamp == nil && last != nil && last.ExitCode != 0 {
			return last.Message
		}
	}
	return ""
}

// ended describes how a container last terminated, in the same words in every round of a crash loop.
func ended(s corev1.ContainerStatus) string {
	what := fmt.Sprintf("container %s: %s", s.Name, kube.CrashLoop)
	t := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	if t == nil {
		return what
	}
	what += fmt.Sprintf(", last exit %d", t.ExitCode)
	if t.Reason == "OOMKilled" {
		what += " (out of memory)"
	}
	if line := lastWords(t.Message); line != "" {
		what += ": " + line
	}
	return what
}

// slowStart is how long a container may take to start before the message mentions it.
const slowStart = time.Minute

// starting describes the containers of a pod that have been starting for a while, with the time limit of their startup probe. A running init container
// counts: the first ones of most services change database tables. due is when the next container will have been starting for a while; zero if there is
// none.
func starting(p corev1.Pod, now time.Time) (words []string, due time.Time) {
	if p.DeletionTimestamp != nil {
		return nil, due
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		spec, init := containerOf(p, s.Name)
		if s.State.Running == nil || spec == nil || s.Started != nil && *s.Started && !init {
			continue
		}
		since := s.State.Running.StartedAt.Add(slowStart)
		switch {
		case now.Before(since):
			due = wait.Earliest(due, since)
		case init:
			words = append(words, fmt.Sprintf("init container %s has not finished yet: it may be changing tables of the database", s.Name))
		case spec.StartupProbe != nil:
			limit := time.Duration(spec.StartupProbe.FailureThreshold) * time.Duration(spec.StartupProbe.PeriodSeconds) * time.Second
			words = append(words, fmt.Sprintf("container %s is starting, and may take up to %s", s.Name, limit))
		}
	}
	return words, due
}

// containerOf finds a container of a pod by its name. init is true if it must finish before the pod can start.
func containerOf(p corev1.Pod, name string) (c *corev1.Container, init bool) {
	named := func(c corev1.Container) bool { return c.Name == name }
	if i := slices.IndexFunc(p.Spec.InitContainers, named); i >= 0 {
		c := &p.Spec.InitContainers[i]
		return c, c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	}
	if i := slices.IndexFunc(p.Spec.Containers, named); i >= 0 {
		return &p.Spec.Containers[i], false
	}
	return nil, false
}

// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
)

// hopeless are waiting reasons that time alone does not cure.
var hopeless = []string{
	kube.CrashLoop, "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff",
	"InvalidImageName", "RunContainerError", "OOMKilled", "Unschedulable",
}

// Trouble says why a pod does not run, "" if it does or is on its way. It names no pod: pods of one workload fail alike.
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

// unschedulable is what the scheduler says of a pod that it finds no place for.
func unschedulable(p corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// looping are the containers of a pod that keep ending, in words, and when the first of those that run now has run long enough not to
// count as one of them; zero if none runs.
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

// LastWords is the end of the log of a container that keeps ending and waits for its next start, "" if there is none.
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

// ended says how a container ended last, in the same words in every round of a loop.
func ended(s corev1.ContainerStatus) string {
	what := fmt.Sprintf("container %s: %s", s.Name, kube.CrashLoop)
	t := s.State.Terminated
	if t == nil {
		t = s.LastTerminationState.Terminated
	}
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

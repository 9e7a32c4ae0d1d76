// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/wait"
)

// crashLoop is how a kubelet calls the wait before it starts a container again that keeps ending.
const crashLoop = "CrashLoopBackOff"

// hopeless are waiting reasons that time alone does not cure.
var hopeless = []string{
	crashLoop, "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff",
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
		if loops, _ := loop(s, now); loops {
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
		loops, until := loop(s, now)
		if !loops {
			continue
		}
		words = append(words, ended(s))
		due = wait.Earliest(due, until)
	}
	return words, due
}

// A container keeps ending if it was restarted at least loopFrom times and ran less than longRun before it ended last; a kubelet forgets
// its back-off after as long. It has recovered when it has run twice as long as then, and no less than shortRun.
const (
	loopFrom = 2
	longRun  = 10 * time.Minute
	shortRun = 5 * time.Second
)

// loop reports whether a container keeps ending. It stays so in all rounds of the loop: while it waits for its next start, and while it runs,
// ready or not, until it has run for longer than last time. until is when that will be, if it runs.
func loop(s corev1.ContainerStatus, now time.Time) (yes bool, until time.Time) {
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Waiting != nil:
		return s.State.Waiting.Reason == crashLoop, until
	case s.State.Terminated != nil:
		return s.RestartCount >= loopFrom && s.State.Terminated.ExitCode != 0, until
	case s.State.Running == nil || last == nil || s.RestartCount < loopFrom || lost(last):
		return false, until
	}
	ran := last.FinishedAt.Sub(last.StartedAt.Time)
	if last.StartedAt.IsZero() {
		ran = 0 // it could not even be started
	}
	if ran >= longRun {
		return false, until
	}
	until = s.State.Running.StartedAt.Add(max(2*ran, shortRun))
	return now.Before(until), until
}

// lost reports whether a container did not end by itself but with its node: containerd and the kubelet make up an exit for one that they find no more. After two
// losses of power, a service has not kept ending.
func lost(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown" // unknownExitReason of containerd's CRI; convertToAPIContainerStatuses of the kubelet
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
	what := fmt.Sprintf("container %s: %s", s.Name, crashLoop)
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

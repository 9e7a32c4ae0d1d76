// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// CrashLoop is the reason that the kubelet gives for its wait before it starts a container again that keeps ending.
const CrashLoop = "CrashLoopBackOff"

// A container keeps ending if it was restarted at least loopFrom times and ran less than longRun before it ended last; a kubelet forgets
// its back-off after as long. It has recovered when it has run twice as long as then, or longerRun more if that is sooner, and no less than shortRun.
const (
	loopFrom  = 2
	longRun   = 10 * time.Minute
	longerRun = 30 * time.Second
	shortRun  = 5 * time.Second
)

// Looping reports whether a container keeps ending. It stays so in all rounds of the loop: while it waits for its next start, and while it runs,
// ready or not, until it has run for longer than last time. until is when that will be, if it runs.
func Looping(s corev1.ContainerStatus, now time.Time) (yes bool, until time.Time) {
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Waiting != nil:
		return s.State.Waiting.Reason == CrashLoop, until
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
	until = s.State.Running.StartedAt.Add(max(min(2*ran, ran+longerRun), shortRun))
	return now.Before(until), until
}

// lost reports whether a container did not end by itself but with its node: containerd and the kubelet make up an exit for one that they find no more. After two
// losses of power, a service has not kept ending.
func lost(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown" // unknownExitReason of containerd's CRI; convertToAPIContainerStatuses of the kubelet
}

// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// CrashLoop is the kubelet's reason for waiting before it restarts a container that keeps ending.
const CrashLoop = "CrashLoopBackOff"

// A container keeps ending if it was restarted at least loopFrom times and its last run was shorter than longRun, after which a kubelet resets its
// back-off. It has recovered when it has run twice as long as last time, or longerRun more if that is sooner, and no less than shortRun.
const (
	loopFrom  = 2
	longRun   = 10 * time.Minute
	longerRun = 30 * time.Second
	shortRun  = 5 * time.Second
)

// Looping reports whether a container keeps ending. It stays true throughout the loop: while the container waits for its next start, and while it
// runs, ready or not, until it has run for longer than last time. until is that time, if it runs.
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
		ran = 0 // it did not even start
	}
	if ran >= longRun {
		return false, until
	}
	until = s.State.Running.StartedAt.Add(max(min(2*ran, ran+longerRun), shortRun))
	return now.Before(until) && !Ahead(s.State.Running.StartedAt.Time, now), until // if it was ahead, it has run for an unknown time
}

// Ahead reports whether a time in the status of an object was set by a clock that was ahead.
func Ahead(t, now time.Time) bool { return t.After(now.Add(time.Minute)) }

// lost reports whether a container ended only because its node did: containerd and the kubelet invent an exit for a container that they no longer
// find. A service does not keep ending just because of two power failures.
func lost(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown" // unknownExitReason in containerd's CRI; convertToAPIContainerStatuses in the kubelet
}

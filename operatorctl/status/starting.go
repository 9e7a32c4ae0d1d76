// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/wait"
)

// slowStart is how long a container may take to start before the message mentions it.
const slowStart = time.Minute

// starting names the containers of a pod that have been starting for a while, and how long each may take, as far as its probe limits
// that. An init container that runs counts: the first ones of most services change the tables of a database. due is when the next one will
// have been starting for a while; zero if none is.
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

// containerOf finds a container of a pod by its name. init is true if it has to end before the pod can start.
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

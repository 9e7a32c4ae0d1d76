// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// hopeless lists the waiting reasons that do not go away by themselves.
var hopeless = append([]string{kube.CrashLoop, "RunContainerError", "OOMKilled", "Unschedulable"}, kube.NotStarting...)

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
	c := kube.Unschedulable(&p)
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
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
// counts: the first ones of most services change database tables. So does a ready pod that Kubernetes does not count yet, because it waits until that has
// lasted for some seconds. due is when the next container will have been starting for a while; zero if there is none.
func starting(p corev1.Pod, now time.Time) (words []string, due time.Time) {
	if p.DeletionTimestamp != nil {
		return nil, due
	}
	at := lists.First(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }).LastTransitionTime
	if kube.PodReady(&p) && kube.Ahead(at.Time, now) {
		words = append(words, fmt.Sprintf("pod %s counts as ready only from %s, because the clock of its node was ahead: kubectl -n %s delete pod %s",
			p.Name, stamp(at.Time), p.Namespace, p.Name))
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

// lineLimit is the maximum number of bytes quoted from a log line.
const lineLimit = 300

const timestamp = `\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?`

var (
	// loudest matches lines that explain why a program terminated, strongest mark first. The services log "[fatal 2026-…] message".
	loudest = []*regexp.Regexp{
		regexp.MustCompile(`\bpanic: `), regexp.MustCompile(`(?i)\[fatal`), regexp.MustCompile(`(?i)\bfatal`), regexp.MustCompile(`(?i)error`),
	}
	// frame matches a line of a Go stack trace: a file and offset, a call, the head of a goroutine, registers.
	frame = regexp.MustCompile(`^\t|\.go:\d+( \+0x[0-9a-f]+)?$|\+0x[0-9a-f]+$|^goroutine \d+|^created by |^[\w./*()-]+\(.*\)$|^\[signal |^exit status \d+$`)
	// moment matches the timestamp of a line, with the brackets around it. It is removed so that every round of a crash loop gives the same message.
	moment = regexp.MustCompile(`(\[` + timestamp + `\]|` + timestamp + `) ?`)
)

// lastWords selects the line that explains why a container terminated from the end of its log (at most 2048 bytes or 80 lines, see FallbackToLogsOnError
// in Kubernetes' documentation of termination messages). Of equally strong lines the last one wins; without any mark, it is the last line outside a
// stack trace.
func lastWords(log string) string {
	var lines []string
	var last string
	for raw := range strings.SplitSeq(strings.TrimRight(log, "\n"), "\n") {
		line := strings.TrimSpace(raw)
		if line == "" {
			continue
		}
		last = line
		if !frame.MatchString(strings.TrimRight(raw, " \r")) || loudest[0].MatchString(line) {
			lines = append(lines, line)
		}
	}
	for _, mark := range loudest {
		for i := len(lines) - 1; i >= 0; i-- {
			if mark.MatchString(lines[i]) {
				return quotable(lines[i])
			}
		}
	}
	if len(lines) > 0 {
		last = lines[len(lines)-1]
	}
	return quotable(last)
}

func quotable(line string) string {
	return Clip(moment.ReplaceAllString(line, ""), lineLimit)
}

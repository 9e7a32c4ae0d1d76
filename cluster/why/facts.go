// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/component"
)

const (
	// eventAge is the maximum age of an event: a lasting problem is reported again.
	eventAge = 15 * time.Minute
	// endAge is how far back the end of a container counts: one that keeps failing is restarted every few minutes.
	endAge = time.Hour
)

type facts struct {
	*Snapshot
	texts []Text
}

func factsOf(s *Snapshot) *facts {
	own := *s
	own.Pods = slices.DeleteFunc(slices.Clone(s.Pods), s.foreign)
	f := &facts{Snapshot: &own}
	f.say()
	return f
}

// PodUnwell reports whether a pod needs a look: it is neither ready nor done, or its containers keep failing.
func PodUnwell(p *corev1.Pod, now time.Time) bool {
	if p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil && now.Sub(p.DeletionTimestamp.Time) > time.Minute {
		return true
	}
	return !kube.PodReady(p) || slices.ContainsFunc(containers(p), func(c corev1.ContainerStatus) bool {
		loops, _ := kube.Looping(c, now)
		return loops
	})
}

func containers(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

func (f *facts) unwell(p *corev1.Pod) bool { return PodUnwell(p, f.Time) && !f.spare(p) }

// spare reports whether the cloud does without a pod: one that waits for a node with its role while its component is Idle, or one that has failed while
// its component is well, because another pod did its work.
func (f *facts) spare(p *corev1.Pod) bool {
	c := f.component(f.ownerOf(podSubject(p)))
	return c != nil && (c.State == v1alpha1.Idle && p.Spec.NodeName == "" || c.Settled() && p.Status.Phase == corev1.PodFailed)
}

func podSubject(p *corev1.Pod) Subject { return Subject("pod/" + p.Namespace + "/" + p.Name) }

func podValues(p *corev1.Pod) map[string]string {
	return map[string]string{"namespace": p.Namespace, "pod": p.Name, "node": p.Spec.NodeName, "component": component.NameOf(p)}
}

func (f *facts) values(h Hit) map[string]string {
	out := map[string]string{"namespace": f.Namespace, "cloud": f.Name}
	f.closedNodes(out)
	kind, name := h.On.split()
	switch kind {
	case "pod":
		if p := f.pod(h.On); p != nil {
			maps.Copy(out, podValues(p))
			out["uid"] = string(p.UID)
		}
	case "node", "component":
		out[kind] = name
		if n := f.node(name); kind == "node" && n != nil {
			out["uid"] = string(n.UID)
		}
	case "claim":
		out["namespace"], out["claim"], _ = strings.Cut(name, "/")
	}
	for k, v := range h.Values {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

// first returns the first item that satisfies is, nil if none does.
func first[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

func where[T any](list []T, on func(*T) Subject, evidence func(*T) string) []Hit {
	var out []Hit
	for i := range list {
		if e := evidence(&list[i]); e != "" {
			out = append(out, Hit{On: on(&list[i]), Evidence: []string{e}})
		}
	}
	return out
}

func (f *facts) pod(s Subject) *corev1.Pod {
	return first(f.Pods, func(p *corev1.Pod) bool { return podSubject(p) == s })
}

// ownerOf returns the component that a subject is or belongs to, "" if none.
func (f *facts) ownerOf(s Subject) string {
	if kind, name := s.split(); kind == "component" {
		return name
	}
	if p := f.pod(s); p != nil && p.Namespace == f.Namespace {
		return component.NameOf(p)
	}
	return ""
}

// component returns a component of the cloud in the snapshot, nil if it is unknown.
func (f *facts) component(name string) *v1alpha1.ComponentStatus {
	if f.Cloud == nil {
		return nil
	}
	return first(f.Cloud.Status.Components, func(c *v1alpha1.ComponentStatus) bool { return c.Name == name })
}

func (f *facts) condition(kind string) string {
	if f.Cloud == nil {
		return ""
	}
	if c := meta.FindStatusCondition(f.Cloud.Status.Conditions, kind); c != nil {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// say collects the texts of everything unhealthy. For a ready pod, the problems in its events and logs are over.
func (f *facts) say() {
	f.cloudSays()
	unwell := map[Subject]*corev1.Pod{}
	for i := range f.Pods {
		if p := &f.Pods[i]; f.unwell(p) {
			unwell[podSubject(p)] = p
			f.podSays(p)
		}
	}
	f.eventsSay(unwell)
	for _, l := range f.Logs {
		p := unwell[Subject("pod/"+l.Namespace+"/"+l.Pod)]
		if p == nil {
			f.hostSays(l)
			continue
		}
		source := fmt.Sprintf("log of pod %s, container %s", l.Pod, l.Container)
		if l.Previous {
			source += " (previous start)"
		}
		for _, line := range l.Lines {
			f.add(LogLine, podSubject(p), source, line, podValues(p), "container", l.Container)
		}
	}
	for _, m := range f.Machines {
		for _, unit := range slices.Sorted(maps.Keys(m.Journals)) {
			if state := cmp.Or(m.Units[unit], "active"); state == "active" && !f.nodeUnwell(m.Node) {
				continue
			}
			for _, line := range m.Journals[unit] {
				f.add(Journal, Subject("node/"+m.Node), "journal of "+unit+" on "+m.Node, line, map[string]string{"node": m.Node, "unit": unit})
			}
		}
		if f.Refused == nil || len(f.Pods) > 0 || m.APIServer == Ready {
			continue // the pods report it, or it is over
		}
		f.add(LogLine, controlPlane, "database of etcd on "+m.Node, m.EtcdDatabase, map[string]string{"node": m.Node, "namespace": "kube-system"})
		for _, name := range slices.Sorted(maps.Keys(m.StaticPods)) {
			for _, line := range m.StaticPods[name] {
				f.add(LogLine, controlPlane, "log of "+name+" on "+m.Node, line,
					map[string]string{"node": m.Node, "namespace": "kube-system", "pod": name + "-" + m.Node, "container": name})
			}
		}
	}
}

func (f *facts) add(in Place, on Subject, source, line string, values map[string]string, more ...string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	for i := 0; i+1 < len(more); i += 2 {
		values[more[i]] = more[i+1]
	}
	f.texts = append(f.texts, Text{In: in, On: on, Source: source, Line: line, Values: values, lower: strings.ToLower(line)})
}

func (f *facts) cloudSays() {
	if f.Cloud == nil {
		return
	}
	f.add(Message, operator, "condition Degraded of the cloud", f.hindrance(), map[string]string{})
	for _, c := range f.Cloud.Status.Components {
		if c.Settled() {
			continue
		}
		text := c.Reason + ": " + c.Message
		f.add(Message, componentSubject(c.Name), "component "+c.Name+" is "+string(c.State), text, map[string]string{"component": c.Name, "state": string(c.State)})
	}
}

// hindrance returns why the operator can do nothing for the cloud, "" if it can.
func (f *facts) hindrance() string {
	c := meta.FindStatusCondition(f.Cloud.Status.Conditions, v1alpha1.ConditionDegraded)
	if c == nil || c.Status != "True" || c.Reason == "ComponentsDegraded" {
		return ""
	}
	return c.Reason + ": " + c.Message
}

func (f *facts) podSays(p *corev1.Pod) {
	source := "pod " + p.Name
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			f.add(State, podSubject(p), source, c.Reason+": "+c.Message, podValues(p))
		}
	}
	if p.Status.Reason != "" || p.Status.Message != "" {
		f.add(State, podSubject(p), source, p.Status.Reason+": "+p.Status.Message, podValues(p))
	}
	for _, c := range containers(p) {
		more := []string{"container", c.Name, "image", c.Image}
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			f.add(State, podSubject(p), source+", container "+c.Name, w.Reason+": "+w.Message, podValues(p), more...)
		}
		for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil && t.ExitCode != 0 && (t.FinishedAt.IsZero() || f.Time.Sub(t.FinishedAt.Time) < endAge) {
				head := fmt.Sprintf("ended with status %d: %s", t.ExitCode, t.Reason)
				f.add(State, podSubject(p), source+", container "+c.Name, head, podValues(p), more...)
				for line := range strings.Lines(t.Message) {
					f.add(LogLine, podSubject(p), source+", container "+c.Name, strings.TrimSpace(line), podValues(p), more...)
				}
			}
		}
	}
}

// eventsSay collects recent warnings about unhealthy pods, unbound claims and the controllers of pods. Ages are relative to the newest event or
// lease of the cluster, so that a wrong clock here does not matter.
func (f *facts) eventsSay(unwell map[Subject]*corev1.Pod) {
	var newest time.Time
	for i := range f.Events {
		if t := eventTime(&f.Events[i]); t.After(newest) {
			newest = t
		}
	}
	now := f.newestLease()
	if now.IsZero() {
		now = f.Time
	}
	if now.After(newest) && now.Sub(newest) < 24*time.Hour {
		newest = now
	}
	for i := range f.Events {
		e := &f.Events[i]
		if e.Type != corev1.EventTypeWarning && e.Reason != "Killing" || newest.Sub(eventTime(e)) > eventAge {
			continue
		}
		on, values := f.about(e, unwell)
		if on == "" {
			continue
		}
		values["reason"] = e.Reason
		if m := eventContainer.FindStringSubmatch(e.InvolvedObject.FieldPath); m != nil {
			values["container"] = m[1]
		}
		f.add(Event, on, fmt.Sprintf("event of %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name), e.Reason+": "+e.Message, values)
	}
}

// eventContainer matches the container of an event, in the form of the kubelet: spec.containers{NAME}.
var eventContainer = regexp.MustCompile(`^spec\.(?:init|ephemeral)?[cC]ontainers\{([^}]+)\}$`)

func eventTime(e *corev1.Event) time.Time {
	t := e.LastTimestamp.Time
	if e.EventTime.After(t) {
		t = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(t) {
		t = e.Series.LastObservedTime.Time
	}
	return t
}

// about returns the subject of an event, "" if it is healthy or unknown.
func (f *facts) about(e *corev1.Event, unwell map[Subject]*corev1.Pod) (Subject, map[string]string) {
	o := e.InvolvedObject
	switch o.Kind {
	case "Pod":
		p := unwell[Subject("pod/"+o.Namespace+"/"+o.Name)]
		overcome := p != nil && e.Reason == "FailedScheduling" && p.Spec.NodeName != ""
		if p != nil && !overcome && (o.UID == "" || o.UID == p.UID) {
			return podSubject(p), podValues(p)
		}
	case "PersistentVolumeClaim":
		for _, c := range f.Claims {
			if c.Namespace == o.Namespace && c.Name == o.Name && c.Status.Phase != corev1.ClaimBound {
				return claimSubject(c.Namespace, c.Name), map[string]string{"claim": c.Name, "namespace": c.Namespace}
			}
		}
	case "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job":
		if name := f.componentOf(o.Namespace, o.Name); name != "" {
			return componentSubject(name), map[string]string{"component": name}
		}
	case "Node":
		if f.nodeUnwell(o.Name) {
			return Subject("node/" + o.Name), map[string]string{"node": o.Name}
		}
	}
	return "", nil
}

// componentOf returns the unsettled component whose workload's name equals or begins the given name: a ReplicaSet's has a suffix.
func (f *facts) componentOf(namespace, name string) string {
	best := ""
	if f.Cloud == nil || namespace != f.Namespace {
		return ""
	}
	for _, c := range f.Cloud.Status.Components {
		own := f.Name + "-" + c.Name
		if (name == own || strings.HasPrefix(name, own+"-")) && len(c.Name) > len(best) {
			best = c.Name
		}
	}
	if c := f.component(best); c == nil || c.Settled() {
		return ""
	}
	return best
}

func (f *facts) node(name string) *corev1.Node {
	return first(f.Nodes, func(n *corev1.Node) bool { return n.Name == name })
}

// nodeUnwell is also true for a node that is not in the cluster.
func (f *facts) nodeUnwell(name string) bool {
	n := f.node(name)
	return n == nil || !kube.NodeReady(n)
}

// podsLabelled returns the pods with a label in a namespace; "" means every namespace.
func (f *facts) podsLabelled(namespace, label, value string) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range f.Pods {
		if p := &f.Pods[i]; p.Labels[label] == value && cmp.Or(namespace, p.Namespace) == p.Namespace {
			out = append(out, p)
		}
	}
	return out
}

func (f *facts) dnsPods() []*corev1.Pod { return f.podsLabelled("kube-system", "k8s-app", "kube-dns") }

func (f *facts) operatorPods() []*corev1.Pod { return f.podsLabelled("", "app", "onecloud-operator") }

func (f *facts) databasePods() []*corev1.Pod { return f.podsLabelled("", "app", "ocadm-mysql") }

// allUnwell reports whether there are pods, and all are unhealthy.
func (f *facts) allUnwell(pods []*corev1.Pod) bool {
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !f.unwell(p) })
}

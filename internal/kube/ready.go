// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// Ready reports whether a Deployment, DaemonSet, StatefulSet, Node or CustomResourceDefinition is ready, and if not, why. pods are the pods of its
// namespace; only those it selects count.
func Ready(obj client.Object, pods []corev1.Pod) (bool, string) {
	switch o := obj.(type) {
	case nil:
		return false, "it does not exist"
	case *appsv1.Deployment:
		return because(deployment(o), o.Spec.Selector, pods)
	case *appsv1.DaemonSet:
		return because(daemonSet(o), o.Spec.Selector, pods)
	case *appsv1.StatefulSet:
		return because(statefulSet(o), o.Spec.Selector, pods)
	case *corev1.Node:
		return node(o)
	case *apiextensionsv1.CustomResourceDefinition:
		return definition(o)
	}
	return false, fmt.Sprintf("the readiness of a %T cannot be determined", obj)
}

// ReadyOn returns a function like Ready that considers only the DaemonSet's pod on one node.
func ReadyOn(node string) func(obj client.Object, pods []corev1.Pod) (bool, string) {
	return func(obj client.Object, pods []corev1.Pod) (bool, string) {
		d, ok := obj.(*appsv1.DaemonSet)
		if !ok {
			return Ready(obj, pods)
		}
		sel, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		if err != nil {
			return false, err.Error()
		}
		why := "it has no pod on node " + node
		for _, p := range pods {
			if p.Spec.NodeName != node || p.DeletionTimestamp != nil || !sel.Matches(labels.Set(p.Labels)) {
				continue
			}
			if why = PodTrouble(&p); why == "" {
				return true, ""
			}
			why = "pod " + p.Name + ": " + why
		}
		return false, why
	}
}

func deployment(d *appsv1.Deployment) string {
	want := ptr.Deref(d.Spec.Replicas, 1)
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not observed it yet"
	case s.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d pods are of the new version", s.UpdatedReplicas, want)
	case s.Replicas > s.UpdatedReplicas:
		return fmt.Sprintf("%d old pods have not ended", s.Replicas-s.UpdatedReplicas)
	case s.AvailableReplicas < want:
		return fmt.Sprintf("%d of %d pods are ready", s.AvailableReplicas, want)
	}
	return ""
}

func daemonSet(d *appsv1.DaemonSet) string {
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not observed it yet"
	case s.DesiredNumberScheduled == 0:
		return "no node matches its pods"
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled:
		return fmt.Sprintf("%d of %d pods are of the new version", s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
	case s.NumberAvailable < s.DesiredNumberScheduled:
		return fmt.Sprintf("%d of %d pods are ready", s.NumberAvailable, s.DesiredNumberScheduled)
	}
	return ""
}

func statefulSet(d *appsv1.StatefulSet) string {
	want := ptr.Deref(d.Spec.Replicas, 1)
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not observed it yet"
	case s.UpdateRevision != s.CurrentRevision && s.UpdatedReplicas < want:
		return fmt.Sprintf("%d of %d pods are of the new version", s.UpdatedReplicas, want)
	case s.ReadyReplicas < want:
		return fmt.Sprintf("%d of %d pods are ready", s.ReadyReplicas, want)
	}
	return ""
}

func node(n *corev1.Node) (bool, string) {
	if NodeReady(n) {
		return true, ""
	}
	return false, oneLine(ReadyCondition(n).Message)
}

// ReadyCondition returns the Ready condition of a node, Unknown if it has none. It is also Unknown if the kubelet has stopped reporting.
func ReadyCondition(n *corev1.Node) corev1.NodeCondition {
	if c := lists.First(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }); c.Type != "" {
		return c
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NeverReported", Message: "its kubelet has not reported yet"}
}

// NodeReady reports whether a node is Ready.
func NodeReady(n *corev1.Node) bool {
	return ReadyCondition(n).Status == corev1.ConditionTrue
}

// InternalIPs returns the addresses of a node within its cluster.
func InternalIPs(n *corev1.Node) []string {
	return lists.Pick(n.Status.Addresses, func(a corev1.NodeAddress) (string, bool) { return a.Address, a.Type == corev1.NodeInternalIP })
}

func definition(d *apiextensionsv1.CustomResourceDefinition) (bool, string) {
	why := "the API server does not serve it yet"
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			return true, ""
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
			why = oneLine(c.Message)
		}
	}
	return false, why
}

// because adds the trouble of the pods to the reason why their workload is not ready, "" if it is.
func because(why string, selector *metav1.LabelSelector, pods []corev1.Pod) (ready bool, _ string) {
	sel, err := metav1.LabelSelectorAsSelector(selector)
	if why == "" || err != nil {
		return why == "", why
	}
	for _, p := range newestFirst(sel, pods) {
		if t := PodTrouble(&p); t != "" {
			return false, why + ": pod " + p.Name + ": " + t
		}
	}
	return false, why
}

// newestFirst returns the selected pods, newest first: the old pods of a rollout do not matter.
func newestFirst(sel labels.Selector, pods []corev1.Pod) []corev1.Pod {
	mine := lists.Filter(pods, func(p corev1.Pod) bool { return sel.Matches(labels.Set(p.Labels)) && p.DeletionTimestamp == nil })
	slices.SortFunc(mine, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return mine
}

// PodEnded reports whether a pod has run to completion, successfully or not.
func PodEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// PodReady reports whether a pod is Ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Unschedulable returns the scheduler's condition of a pod that fits on no node, otherwise an empty one.
func Unschedulable(p *corev1.Pod) corev1.PodCondition {
	return lists.First(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// NotStarting lists the waiting reasons of containers that the kubelet cannot start. It tries again.
var NotStarting = []string{"CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", ErrImagePull, "ImagePullBackOff", "InvalidImageName"}

// ErrImagePull is the waiting reason after the first failed pull.
const ErrImagePull = "ErrImagePull"

// Stuck reports whether a pod cannot start until something else changes: no node takes it, its image cannot be pulled, or its container cannot be
// created. That may be over soon: the scheduler and the kubelet try again.
func Stuck(p *corev1.Pod) bool {
	return Unschedulable(p).Reason != "" || slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && slices.Contains(NotStarting, s.State.Waiting.Reason)
	})
}

// NoImage returns a finding if the pod's node cannot get ocadm's image. The kubelet would keep trying for as long as the pod lives.
func NoImage(p *corev1.Pod) error {
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil || !slices.Contains([]string{ErrImagePull, "ImagePullBackOff", "ErrImageNeverPull"}, w.Reason) {
			continue
		}
		image := p.Spec.Containers[0].Image
		return finding.New("OCA-4175", "Node "+p.Spec.NodeName+" cannot pull the image "+image, w.Reason+": "+w.Message,
			"if this control-plane node has a depot, here: ocadm depot add \"$(command -v ocadm)\" --name "+image+"; otherwise: ocadm image push "+image+
				"; then run the same command again")
	}
	return nil
}

// PodTrouble returns what keeps a pod from being ready, in one line; "" if it is ready.
func PodTrouble(p *corev1.Pod) string {
	if PodReady(p) {
		return ""
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "not scheduled: " + oneLine(c.Message)
		}
	}
	if p.Status.Phase == corev1.PodFailed && p.Status.Message != "" {
		return oneLine(p.Status.Message)
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := containerTrouble(s); t != "" {
			return t
		}
	}
	if p.Spec.NodeName == "" {
		return "not scheduled yet"
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return "the kubelet has not picked it up yet"
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Running != nil && !s.Ready {
			return fmt.Sprintf("container %s runs and is not ready yet", s.Name)
		}
	}
	return "starting"
}

func containerTrouble(s corev1.ContainerStatus) string {
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Waiting != nil && last != nil:
		return fmt.Sprintf("container %s ended with status %d%s, restarted %s", s.Name, last.ExitCode, message(last), lists.Times(s.RestartCount))
	case s.State.Waiting != nil && s.State.Waiting.Reason == "PodInitializing", s.State.Waiting != nil && s.State.Waiting.Reason == "":
		return ""
	case s.State.Waiting != nil && s.State.Waiting.Reason == "ContainerCreating":
		return fmt.Sprintf("container %s is being created", s.Name)
	case s.State.Waiting != nil:
		text := fmt.Sprintf("container %s: %s", s.Name, s.State.Waiting.Reason)
		if m := oneLine(s.State.Waiting.Message); m != "" {
			text += ": " + m
		}
		return text
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		return fmt.Sprintf("container %s ended with status %d%s", s.Name, s.State.Terminated.ExitCode, message(s.State.Terminated))
	}
	return ""
}

func message(t *corev1.ContainerStateTerminated) string {
	text := oneLine(t.Message)
	if text == "" && t.Reason != "Error" {
		text = t.Reason
	}
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// longest limits how much of a message is kept.
const longest = 400

// oneLine keeps the end of a message, where programs state the reason.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > longest {
		s = "…" + s[len(s)-longest:]
	}
	return s
}

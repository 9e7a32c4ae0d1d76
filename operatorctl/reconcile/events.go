// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/status"
)

// pendingEvent is an event that is not sent yet.
type pendingEvent struct {
	about        subject
	kind, reason string
	note         string
}

// subject is what an event is about: a component, an object. The recorder merges events with the same reason and action, whatever their text, so the
// subject is used as the action.
type subject string

// wholeCloud is the subject of events that are not about a single component.
const wholeCloud subject = "Reconcile"

func normal(about subject, reason, format string, args ...any) pendingEvent {
	return pendingEvent{about, corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(about subject, reason, format string, args ...any) pendingEvent {
	return pendingEvent{about, corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// transitions returns an event for each transition of a component or the cloud, and for a new reason of a Degraded component. There are several
// states on the way to Available: leaving a settled state and arriving are events, the steps in between are not.
func transitions(before, after v1alpha1.OnecloudClusterStatus) (events []pendingEvent) {
	for _, now := range after.Components {
		old := previous(before, now.Name)
		var was v1alpha1.State
		if old != nil {
			was = old.State
		}
		about := subject(now.Name)
		switch {
		case now.State == v1alpha1.Degraded:
			if was != now.State || old.Reason != now.Reason || now.Reason == status.ReasonInvalidOption && old.Message != now.Message {
				events = append(events, warning(about, now.Reason, "%s is Degraded: %s", now.Name, now.Message))
			}
		case now.State == was || now.State == v1alpha1.Disabled && old == nil:
		case now.State == v1alpha1.Available:
			events = append(events, normal(about, string(now.State), "%s is Available", now.Name))
		case now.State == v1alpha1.Idle || now.State == v1alpha1.Disabled:
			events = append(events, normal(about, string(now.State), "%s is %s: %s", now.Name, now.State, now.Message))
		case was.Settled() || was == v1alpha1.Degraded:
			events = append(events, normal(about, now.Reason, "%s is %s: %s", now.Name, now.State, now.Message))
		}
	}
	if before.Phase != after.Phase {
		events = append(events, normal(wholeCloud, string(after.Phase), "the cloud is %s", after.Phase))
	}
	return events
}

// nodeEvents returns events of nodes of the cloud that were lost, recovered or were deleted since the last reconcile, and the nodes that are lost
// now. What an earlier process reported is not repeated.
func nodeEvents(s State) (events []pendingEvent, lost map[string]string) {
	was := s.Last.lost
	if s.Live.nodes == nil {
		return nil, was
	}
	lost = status.Lost(s.Live.nodes, s.Live.pods, s.Now)
	if was == nil && meta.IsStatusConditionFalse(s.Cloud.Status.Conditions, v1alpha1.ConditionNodesReady) {
		return nil, lost
	}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		if _, known := was[name]; !known {
			events = append(events, warning(subject("node/"+name), status.ReasonNodesNotReady, "node %s is not Ready", status.NotReady(name, lost[name])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, still := lost[name]; !still {
			events = append(events, normal(subject("node/"+name), status.ReasonNodesReady, "node %s is Ready again or no longer exists", name))
		}
	}
	return events, lost
}

// degraded returns an event if a cloud became Degraded, or is so for another reason; with words, also if the message changed.
func degraded(before, after v1alpha1.OnecloudClusterStatus, words bool) []pendingEvent {
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionDegraded)
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionDegraded)
	if is == nil || was != nil && was.Reason == is.Reason && (!words || was.Message == is.Message) {
		return nil
	}
	return []pendingEvent{warning(wholeCloud, is.Reason, "%s", is.Message)}
}

// announced lists the conditions whose changes of status or reason are events. usual reports whether a condition may begin like this without an
// event.
var announced = []struct {
	kind  string
	about subject
	usual func(metav1.Condition) bool
}{
	{v1alpha1.ConditionBackupProven, "Backup", func(c metav1.Condition) bool { return c.Status == metav1.ConditionUnknown }},
	{v1alpha1.ConditionDatabaseRedundant, "Database", func(c metav1.Condition) bool { return c.Reason == status.ReasonOneCopy }},
	{v1alpha1.ConditionNodeCertificates, "NodeCertificates", func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue }},
}

// conditionEvents returns events for changes of a cloud's conditions.
func conditionEvents(before, after v1alpha1.OnecloudClusterStatus) (events []pendingEvent) {
	if message := after.Certificates.Message; message != "" && message != before.Certificates.Message {
		events = append(events, normal("Certificates", "Certificates", "%s", message))
	}
	for _, one := range announced {
		was, is := meta.FindStatusCondition(before.Conditions, one.kind), meta.FindStatusCondition(after.Conditions, one.kind)
		switch {
		case is == nil, was == nil && one.usual(*is), was != nil && was.Status == is.Status && was.Reason == is.Reason:
		case is.Status == metav1.ConditionFalse:
			events = append(events, warning(one.about, is.Reason, "%s", is.Message))
		default:
			events = append(events, normal(one.about, is.Reason, "%s", is.Message))
		}
	}
	if is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionIgnored); is != nil && is.Message != status.Message(before.Conditions, is.Type) {
		events = append(events, warning(wholeCloud, is.Reason, "%s", is.Message))
	}
	if now := status.Message(after.Conditions, v1alpha1.ConditionUpdateAvailable); now != "" && now != status.Message(before.Conditions, v1alpha1.ConditionUpdateAvailable) {
		events = append(events, normal(wholeCloud, v1alpha1.ConditionUpdateAvailable, "%s", now))
	}
	return events
}

func previous(before v1alpha1.OnecloudClusterStatus, name string) *v1alpha1.ComponentStatus {
	for i := range before.Components {
		if before.Components[i].Name == name {
			return &before.Components[i]
		}
	}
	return nil
}

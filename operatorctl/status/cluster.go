// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Conditions of a cloud, out of the states of its components. A condition whose status does not change keeps its time.
func Conditions(previous []metav1.Condition, components []v1alpha1.ComponentStatus, generation int64, now time.Time) []metav1.Condition {
	by := map[v1alpha1.State][]string{}
	total := 0
	var outdated []string
	for _, c := range components {
		if c.Outdated {
			outdated = append(outdated, c.Name)
		}
		by[c.State] = append(by[c.State], c.Name)
		if c.State != v1alpha1.Disabled && c.State != v1alpha1.Idle {
			total++
		}
	}
	available, idle := len(by[v1alpha1.Available]), len(by[v1alpha1.Idle])
	under := slices.Concat(by[v1alpha1.Provisioning], by[v1alpha1.Progressing], by[v1alpha1.Waiting], outdated)
	slices.Sort(under)
	count := fmt.Sprintf("%d of %d components are Available", available, total)
	if idle > 0 {
		count += fmt.Sprintf(", %d Idle", idle)
	}

	out := slices.Clone(previous)
	set := func(kind string, yes bool, reason, message string) {
		out = with(out, generation, now, kind, yes, reason, message)
	}
	degraded := by[v1alpha1.Degraded]
	switch {
	case total > 0 && available == total && len(outdated) == 0:
		set(v1alpha1.ConditionReady, true, "AllAvailable", count)
	case len(degraded) > 0:
		set(v1alpha1.ConditionReady, false, "ComponentsDegraded", count+"; degraded: "+strings.Join(degraded, ", "))
	default:
		set(v1alpha1.ConditionReady, false, "ComponentsProgressing", count+"; in progress: "+strings.Join(under, ", "))
	}
	if len(under) > 0 {
		set(v1alpha1.ConditionProgressing, true, "ComponentsProgressing", "in progress: "+strings.Join(under, ", "))
	} else {
		set(v1alpha1.ConditionProgressing, false, "NothingToDo", "")
	}
	if len(degraded) > 0 {
		set(v1alpha1.ConditionDegraded, true, "ComponentsDegraded", why(components))
	} else {
		set(v1alpha1.ConditionDegraded, false, "NoneDegraded", "")
	}
	return out
}

// Invalid are the conditions of a cloud whose spec cannot be carried out.
func Invalid(previous []metav1.Condition, message string, generation int64, now time.Time) []metav1.Condition {
	out := with(previous, generation, now, v1alpha1.ConditionDegraded, true, ReasonInvalid, message)
	for _, kind := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionReady} {
		out = with(out, generation, now, kind, false, ReasonInvalid, message)
	}
	return out
}

func why(components []v1alpha1.ComponentStatus) string {
	var parts []string
	for _, c := range components {
		if c.State == v1alpha1.Degraded {
			parts = append(parts, c.Name+": "+c.Message)
		}
	}
	return strings.Join(parts, "; ")
}

// VersionWaits reports that the spec has a version to which no operation has moved the cloud yet. never is true if the operator may not run any.
func VersionWaits(previous []metav1.Condition, wanted, inForce string, never bool, generation int64, now time.Time) []metav1.Condition {
	next := "ocadm operation list"
	if never {
		next = "the operator may not run operations; give it the right: ocadm init phase operator"
	}
	message := fmt.Sprintf("version %s of the spec waits for an operation, the cloud is at %s: %s", wanted, inForce, next)
	out := with(slices.Clone(previous), generation, now, v1alpha1.ConditionReady, false, "WaitsForOperation", message)
	return with(out, generation, now, v1alpha1.ConditionProgressing, true, "WaitsForOperation", message)
}

// Phase is the whole cloud in one word. running is the release that every component has reached once, "" before that. A component that
// is merely restarting does not change it: that is what the conditions are for.
func Phase(components []v1alpha1.ComponentStatus, running, wanted string, deleting bool) v1alpha1.Phase {
	moving, degraded := false, false
	for _, c := range components {
		moving = moving || c.Outdated
		switch c.State {
		case v1alpha1.Degraded:
			degraded = true
		case v1alpha1.Waiting, v1alpha1.Provisioning, v1alpha1.Progressing:
			moving = true
		}
	}
	switch {
	case deleting:
		return v1alpha1.PhaseDeleting
	case degraded && !moving:
		return v1alpha1.PhaseFailed
	case (moving || degraded) && running == "":
		return v1alpha1.PhaseCreating
	case running != wanted && running != "":
		return v1alpha1.PhaseUpgrading
	case degraded:
		return v1alpha1.PhaseFailed
	}
	return v1alpha1.PhaseRunning
}

// Version is the release that every component of the cloud runs; it stays at the previous one until the last has moved.
func Version(previous, wanted string, components []v1alpha1.ComponentStatus) string {
	for _, c := range components {
		if !c.Settled() {
			return previous
		}
	}
	return wanted
}

// Legacy is what older tools read of a component, nil where it has no workload.
func Legacy(r component.Resolved, s v1alpha1.ComponentStatus) *v1alpha1.WorkloadStatus {
	if s.State == v1alpha1.Disabled || r.Workload.Kind == component.NoWorkload || r.FullImage == "" {
		return nil
	}
	repository, name := path.Split(images.Split(s.Image).Repository)
	out := &v1alpha1.WorkloadStatus{Phase: v1alpha1.WorkloadUpgrade, ImageStatus: &v1alpha1.ImageStatus{
		Image: s.Image, Repository: strings.TrimSuffix(repository, "/"), ImageName: name, Tag: Tag(s.Image), ImagePullPolicy: corev1.PullPolicy(r.PullPolicy),
	}}
	if s.Settled() {
		out.Phase = v1alpha1.WorkloadNormal
	}
	return out
}

// Blocked are the conditions of a cloud that could not be reconciled at all: everything else stays as it was seen last.
func Blocked(previous []metav1.Condition, message string, generation int64, now time.Time) []metav1.Condition {
	return with(previous, generation, now, v1alpha1.ConditionDegraded, true, ReasonBlocked, message)
}

// Deleting are the conditions of a cloud that is being deleted.
func Deleting(previous []metav1.Condition, message string, generation int64, now time.Time) []metav1.Condition {
	out := with(previous, generation, now, v1alpha1.ConditionReady, false, ReasonDeleting, message)
	return with(out, generation, now, v1alpha1.ConditionProgressing, true, ReasonDeleting, message)
}

// Paused are the conditions of a cloud that a user has paused.
func Paused(previous []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	return with(previous, generation, now, v1alpha1.ConditionProgressing, false, ReasonPaused, "paused by annotation "+v1alpha1.AnnotationPaused)
}

// ignoredLimit is how many fields without effect are named; a resource of the earlier operator may have many.
const ignoredLimit = 20

// Ignored are the conditions of a cloud with fields without effect. Where there are none, there is no such condition.
func Ignored(previous []metav1.Condition, reason string, fields []string, generation int64, now time.Time) []metav1.Condition {
	if len(fields) == 0 {
		return without(previous, v1alpha1.ConditionIgnored)
	}
	message := strings.Join(fields[:min(len(fields), ignoredLimit)], "; ")
	if more := len(fields) - ignoredLimit; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	out := with(previous, generation, now, v1alpha1.ConditionIgnored, true, reason, "")
	meta.FindStatusCondition(out, v1alpha1.ConditionIgnored).Message = message // in full
	return out
}

// UpdateAvailable are the conditions of a cloud whose release another operator rendered: an update changes the components.
func UpdateAvailable(previous []metav1.Condition, components []string, operator string, generation int64, now time.Time) []metav1.Condition {
	if len(components) == 0 {
		return with(previous, generation, now, v1alpha1.ConditionUpdateAvailable, false, "UpToDate", "")
	}
	return with(previous, generation, now, v1alpha1.ConditionUpdateAvailable, true, "AnotherOperator", fmt.Sprintf(
		"operator %s has changes for %s; to see them: ocadm cluster diff; to apply them: ocadm cluster update", operator, strings.Join(components, ", ")))
}

// causeLimit is how much of a cause UpdateFailed holds: what to do next must fit after it.
const causeLimit = 300

// UpdateFailed are the conditions of a cloud that an operation was to move to another release and did not, nil for none.
func UpdateFailed(previous []metav1.Condition, o *v1alpha1.OnecloudOperation, generation int64, now time.Time) []metav1.Condition {
	if o == nil {
		return without(previous, v1alpha1.ConditionUpdateFailed)
	}
	reason := "Refused"
	if o.Status.Rollout != nil {
		reason = string(o.Status.Phase)
	}
	message := o.Spec.Action
	if p := o.Spec.Update; p != nil && p.Version != "" {
		message += " to " + p.Version
	}
	cause, next := o.Status.Message, ""
	for _, f := range o.Status.Findings {
		if !f.Warning {
			cause, next = strings.TrimSuffix(f.Code+" "+f.What+": "+f.Cause, ": "), "; next: "+f.Remedy
			break
		}
	}
	message += fmt.Sprintf(" was %s: %s%s; details: ocadm operation show %s", strings.ToLower(reason), Clip(cause, causeLimit), next, o.Name)
	out := with(previous, generation, now, v1alpha1.ConditionUpdateFailed, true, reason, "")
	meta.FindStatusCondition(out, v1alpha1.ConditionUpdateFailed).Message = message // in full
	return out
}

// Message of a condition, "" if there is no such one.
func Message(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// with sets a condition. One whose status does not change keeps its time.
func with(previous []metav1.Condition, generation int64, now time.Time, kind string, yes bool, reason, message string) []metav1.Condition {
	c := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message), ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if yes {
		c.Status = metav1.ConditionTrue
	}
	out := slices.Clone(previous)
	meta.SetStatusCondition(&out, c)
	return out
}

func without(previous []metav1.Condition, kind string) []metav1.Condition {
	out := slices.Clone(previous)
	meta.RemoveStatusCondition(&out, kind)
	return out
}

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
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Cloud is the status of a cloud under evaluation. It starts as the last reported status, and each evaluation replaces its part.
type Cloud struct {
	v1alpha1.OnecloudClusterStatus
	// before holds the last reported conditions.
	before []metav1.Condition
	meta   metav1.ObjectMeta
	now    time.Time
}

// Of returns a Cloud that starts as the last reported status.
func Of(cr *v1alpha1.OnecloudCluster, now time.Time) *Cloud {
	return &Cloud{*cr.Status.DeepCopy(), cr.Status.Conditions, cr.ObjectMeta, now}
}

// set sets a condition. A condition whose status does not change keeps its time, even if an evaluation sets it to another status in between.
func (c *Cloud) set(kind string, yes bool, reason, message string) {
	is := metav1.ConditionFalse
	if yes {
		is = metav1.ConditionTrue
	}
	c.setInFull(kind, is, reason, clip(message))
}

// setInFull is like set, for a condition that may be unknown, or whose message must not be cut.
func (c *Cloud) setInFull(kind string, is metav1.ConditionStatus, reason, message string) {
	at := metav1.NewTime(c.now.Truncate(time.Second))
	if was := meta.FindStatusCondition(c.before, kind); was != nil && was.Status == is {
		at = was.LastTransitionTime
	}
	meta.SetStatusCondition(&c.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: finding.Here(message, c.meta.Namespace, c.meta.Name),
		ObservedGeneration: c.meta.Generation, LastTransitionTime: at,
	})
}

func (c *Cloud) remove(kind string) { meta.RemoveStatusCondition(&c.Conditions, kind) }

// Summarize derives the conditions of the cloud from the states of its components.
func (c *Cloud) Summarize() {
	by := map[v1alpha1.State][]string{}
	total := 0
	var outdated []string
	for _, one := range c.Components {
		if one.Outdated {
			outdated = append(outdated, one.Name)
		}
		by[one.State] = append(by[one.State], one.Name)
		if one.State != v1alpha1.Disabled && one.State != v1alpha1.Idle {
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
	degraded := by[v1alpha1.Degraded]
	switch {
	case total > 0 && available == total && len(outdated) == 0:
		c.set(v1alpha1.ConditionReady, true, "AllAvailable", count)
	case len(degraded) > 0:
		c.set(v1alpha1.ConditionReady, false, "ComponentsDegraded", count+"; degraded: "+strings.Join(degraded, ", "))
	default:
		c.set(v1alpha1.ConditionReady, false, "ComponentsProgressing", count+"; in progress: "+strings.Join(under, ", "))
	}
	if len(under) > 0 {
		c.set(v1alpha1.ConditionProgressing, true, "ComponentsProgressing", "in progress: "+strings.Join(under, ", "))
	} else {
		c.set(v1alpha1.ConditionProgressing, false, "NothingToDo", "")
	}
	if len(degraded) > 0 {
		c.set(v1alpha1.ConditionDegraded, true, "ComponentsDegraded", why(c.Components))
	} else {
		c.set(v1alpha1.ConditionDegraded, false, "NoneDegraded", "")
	}
}

func (c *Cloud) Invalid(message string) {
	c.ObservedGeneration, c.Phase = c.meta.Generation, v1alpha1.PhaseFailed
	c.set(v1alpha1.ConditionDegraded, true, ReasonInvalid, message)
	for _, kind := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionReady} {
		c.set(kind, false, ReasonInvalid, message)
	}
}

func why(components []v1alpha1.ComponentStatus) string {
	parts := lists.Pick(components, func(c v1alpha1.ComponentStatus) (string, bool) {
		return c.Name + ": " + c.Message, c.State == v1alpha1.Degraded
	})
	return strings.Join(parts, "; ")
}

// VersionWaits reports that no operation has yet moved the cloud to the version in the spec. never is set if the operator may not run operations.
func (c *Cloud) VersionWaits(wanted, inForce string, never bool) {
	next := "ocadm operation list; if none is listed, earlier attempts have failed, and the next one waits; to try now: ocadm cluster update --version " + wanted
	if never {
		next = "the operator is not allowed to run operations; to grant the permission: ocadm init phase operator"
	}
	message := fmt.Sprintf("version %s of the spec is waiting for an operation; the cloud is at %s: %s", wanted, inForce, next)
	c.set(v1alpha1.ConditionReady, false, "WaitsForOperation", message)
	c.set(v1alpha1.ConditionProgressing, true, "WaitsForOperation", message)
}

// Phase returns the phase of the whole cloud. running is the last release that every component reached, "" if there is none. A component that merely
// restarts does not change the phase: the conditions report that.
func Phase(components []v1alpha1.ComponentStatus, running, wanted string) v1alpha1.Phase {
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

// Version returns the release that every component of the cloud runs. It stays at the previous one until the last component has moved.
func Version(previous, wanted string, components []v1alpha1.ComponentStatus) string {
	if slices.ContainsFunc(components, func(c v1alpha1.ComponentStatus) bool { return !c.Settled() }) {
		return previous
	}
	return wanted
}

// Legacy returns the status of a component in the form that older tools read, nil if it has no workload.
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

// Blocked reports that the cloud could not be reconciled at all. The rest of the status stays as last observed.
func (c *Cloud) Blocked(message string) {
	c.set(v1alpha1.ConditionDegraded, true, ReasonBlocked, message)
}

func (c *Cloud) Deleting(message string) {
	c.Phase, c.ObservedGeneration = v1alpha1.PhaseDeleting, c.meta.Generation
	c.set(v1alpha1.ConditionReady, false, ReasonDeleting, message)
	c.set(v1alpha1.ConditionProgressing, true, ReasonDeleting, message)
	c.set(v1alpha1.ConditionDegraded, false, ReasonDeleting, "") // its components are no longer watched, and a blocked deletion goes on
}

// Paused reports a pause. What is not evaluated during it becomes unknown; the message stays, so that no event repeats it afterwards.
func (c *Cloud) Paused() {
	c.ObservedGeneration = c.meta.Generation
	c.set(v1alpha1.ConditionProgressing, false, ReasonPaused, "paused by annotation "+v1alpha1.AnnotationPaused)
	for _, kind := range []string{v1alpha1.ConditionHighlyAvailable, v1alpha1.ConditionUpdateAvailable} {
		if was := meta.FindStatusCondition(c.before, kind); was != nil {
			c.setInFull(kind, metav1.ConditionUnknown, ReasonPaused, was.Message)
		}
	}
}

// ignoredLimit is the maximum number of ignored fields in the message; a resource of the earlier operator may have many.
const ignoredLimit = 20

// Ignored lists the fields that have no effect. Without such fields, the condition is removed.
func (c *Cloud) Ignored(reason string, fields []string) {
	if len(fields) == 0 {
		c.remove(v1alpha1.ConditionIgnored)
		return
	}
	c.setInFull(v1alpha1.ConditionIgnored, metav1.ConditionTrue, reason, strings.Join(lists.Some(fields, ignoredLimit), "; "))
}

// UpdateAvailable lists the components that an update would change because another operator rendered them.
func (c *Cloud) UpdateAvailable(components []string, operator string) {
	if len(components) == 0 {
		c.set(v1alpha1.ConditionUpdateAvailable, false, "UpToDate", "")
		return
	}
	c.set(v1alpha1.ConditionUpdateAvailable, true, "AnotherOperator", fmt.Sprintf(
		"operator %s has changes for %s; to see them: ocadm cluster diff; to apply them: ocadm cluster update", operator, strings.Join(components, ", ")))
}

// causeLimit is the length of the cause in UpdateFailed: the remedy must fit after it.
const causeLimit = 300

// UpdateFailed reports the operation that failed to move the cloud to another release, nil for none.
func (c *Cloud) UpdateFailed(o *v1alpha1.OnecloudOperation) {
	if o == nil {
		c.remove(v1alpha1.ConditionUpdateFailed)
		return
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
	c.setInFull(v1alpha1.ConditionUpdateFailed, metav1.ConditionTrue, reason, message)
}

// Message returns the message of a condition, "" if there is no such condition.
func Message(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

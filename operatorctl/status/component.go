// SPDX-License-Identifier: Apache-2.0

// Package status computes the reported status from observations: a state per component, conditions and a phase per cloud. It is pure and deterministic:
// the same observation gives the same status, so a cloud at rest is never written.
package status

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// The reasons of a component's state.
const (
	ReasonDisabled       = "Disabled"
	ReasonInvalid        = "InvalidSpec"
	ReasonInvalidOption  = v1alpha1.ReasonInvalidOption
	ReasonNotApplied     = "NotApplied"
	ReasonDependencies   = "WaitingForComponents"
	ReasonWave           = v1alpha1.ReasonWave
	ReasonEffectPending  = "EffectPending"
	ReasonEffectFailed   = "EffectFailed"
	ReasonNotMade        = "NotMade"
	ReasonRollout        = "RolloutInProgress"
	ReasonStalled        = "RolloutStalled"
	ReasonPods           = "PodsNotRunning"
	ReasonNoNodes        = "NoMatchingNodes"
	ReasonNodesReady     = "NodesReady"
	ReasonNodesNotReady  = "NodesNotReady"
	ReasonAvailable      = "Available"
	ReasonPaused         = "Paused"
	ReasonAsScheduled    = "Scheduled"
	ReasonLastRunFailed  = "LastRunFailed"
	ReasonConfigurations = "Configured"
	ReasonBlocked        = "Blocked"
	ReasonDeleting       = "Deleting"
	ReasonTerminating    = "Terminating"
	ReasonUnknownFields  = "UnknownFields"
	ReasonWithoutEffect  = "WithoutEffect"
)

// messageLimit keeps the status of sixty components small.
const messageLimit = 400

// Observed holds what is known about one component.
type Observed struct {
	// Name is the component's; Previous is its last reported status, nil if there is none.
	Name     string
	Previous *v1alpha1.ComponentStatus
	Resolved component.Resolved
	// Problem is why it cannot be rendered, Refused why the API server rejected it.
	Problem, Refused string
	// InvalidOptions describes the options in its ConfigMap that its service would reject.
	InvalidOptions string
	// RefusedReason is the condition reason for Refused, NotApplied when empty.
	RefusedReason string
	// Kept lists what stays unchanged although the spec differs.
	Kept []engine.Kept
	// BlockedBy lists the components that must be Available before its workload is created or updated.
	BlockedBy []string
	// Effects lists the effects that are not done, in order.
	Effects []Effect
	// Workload is the live one, nil if there is none yet. Current is true if it matches the desired state, so that it waits for nothing.
	Workload *Workload
	Current  bool
	// Copies lists its further workloads: read-only replicas, and copies for other zones.
	Copies []Copy
	// Held is what it waits for before it moves to the current release, "" if it has moved: an operation moves components in waves.
	Held string
	// Paused is true if a user keeps the operator from its workload, Left if from all of its objects.
	Paused, Left bool
	Now          time.Time
}

// Copy is a further workload of a component; Workload is nil until it exists.
type Copy struct {
	Name     string
	Workload *Workload
}

// Effect is a change outside Kubernetes that is not done yet.
type Effect struct {
	Key string
	// Before is true if the workload is created only after it.
	Before bool
	// Waiting is what it waits for, Error why it failed. If both are empty, it is in progress.
	Waiting, Error string
}

// Component returns the status of one component.
func Component(o Observed) v1alpha1.ComponentStatus {
	s := v1alpha1.ComponentStatus{Name: o.Name, Pinned: o.Resolved.Pinned, Image: o.Resolved.FullImage}
	s.State, s.Reason, s.Message = judge(o)
	if s.State == v1alpha1.Waiting || s.State == v1alpha1.Provisioning {
		s.BlockedBy = o.BlockedBy
	}
	// A component is Waiting only if it does not run. If it still serves, it is Available; only its update waits.
	if s.State == v1alpha1.Waiting && !o.Current && o.Workload != nil && o.Workload.Answering > 0 {
		s.State, s.Outdated = v1alpha1.Available, true
		if len(s.BlockedBy) > 0 {
			s.Message = "waiting for " + strings.Join(s.BlockedBy, ", ") + " to update"
		}
	}
	if o.Held != "" && s.State == v1alpha1.Available {
		s.Outdated, s.Reason, s.Message = true, ReasonWave, o.Held
	}
	if w := o.Workload; w != nil && o.Resolved.Enabled {
		s.Replicas, s.Ready, s.ObservedGeneration = w.Wanted, w.Ready, w.ObservedGeneration
	}
	s.Version = Tag(s.Image)
	// Until the new version serves, report the old one.
	if p := o.Previous; p != nil && !s.Settled() && p.Version != "" && o.Workload != nil {
		s.Version = p.Version
	}
	if !o.Resolved.Enabled || o.Workload == nil && o.Resolved.Workload.Kind != component.NoWorkload {
		s.Version = ""
	}
	if o.InvalidOptions != "" && o.Resolved.Enabled {
		s.State, s.Reason, s.Message = invalidOption(o, s)
		s.BlockedBy = nil
	}
	s.Message = clip(s.Message)
	s.Since = metav1.NewTime(o.Now.Truncate(time.Second))
	if p := o.Previous; p != nil && p.State == s.State && !p.Since.IsZero() {
		s.Since = p.Since
	}
	return s
}

// judge checks things in the order in which they occur in the life of a component.
func judge(o Observed) (v1alpha1.State, string, string) {
	r := o.Resolved
	switch {
	case !r.Enabled && o.Left:
		return v1alpha1.Disabled, ReasonPaused, r.DisabledReason + "; its existing objects are kept, because it is paused"
	case !r.Enabled:
		return v1alpha1.Disabled, ReasonDisabled, r.DisabledReason
	case o.Left:
		return paused(o.Workload)
	case o.Problem != "":
		return v1alpha1.Degraded, ReasonInvalid, o.Problem
	case o.RefusedReason == ReasonTerminating:
		return v1alpha1.Progressing, ReasonTerminating, o.Refused
	case o.Refused != "" && o.RefusedReason != "":
		return v1alpha1.Degraded, o.RefusedReason, o.Refused
	case o.Refused != "":
		return v1alpha1.Degraded, ReasonNotApplied, o.Refused
	}
	if state, reason, message := effects(o, true); state != "" {
		return state, reason, message
	}
	if o.Paused {
		return paused(o.Workload)
	}
	// A workload that matches the desired state is judged by its own health alone, whatever happens to its dependencies.
	if len(o.BlockedBy) > 0 && (o.Workload == nil || !o.Current) {
		return v1alpha1.Waiting, ReasonDependencies, "waiting for " + strings.Join(o.BlockedBy, ", ")
	}
	well, reason, message := v1alpha1.Available, ReasonConfigurations, ""
	if r.Workload.Kind != component.NoWorkload {
		if o.Workload == nil {
			return v1alpha1.Progressing, ReasonNotMade, strings.ToLower(string(r.WorkloadKind())) + " is being created"
		}
		if o.Workload.Wanted == 0 && o.Workload.Scalable() && r.Replicas > 0 { // after a stop of the cloud, or an edit: the operator restores the number
			return v1alpha1.Progressing, ReasonRollout, cmp.Or(o.Held, "it is scaled to zero; the operator is starting it")
		}
		if well, reason, message = o.Workload.judge(); !well.Settled() {
			return well, reason, message
		}
	}
	if state, reason, message := copies(o.Copies); state != "" {
		return state, reason, message
	}
	if state, reason, message := effects(o, false); state != "" {
		return state, reason, message
	}
	if r.Workload.Kind == component.CronJob {
		message = "runs at " + r.Schedule
	}
	for i, k := range o.Kept {
		if i == 0 {
			reason, message = k.Reason, k.Message
		} else {
			message += "; " + k.Message
		}
	}
	return well, reason, message
}

// copies returns the state of the worst copy, "" if all run.
func copies(all []Copy) (state v1alpha1.State, reason, message string) {
	for _, t := range all {
		is, why, says := v1alpha1.Progressing, ReasonNotMade, "is being created"
		if t.Workload != nil {
			is, why, says = t.Workload.judge()
		}
		if !is.Settled() && (state == "" || is == v1alpha1.Degraded && state != is) {
			state, reason, message = is, why, t.Name+": "+says
		}
	}
	return state, reason, message
}

// invalidOption returns the state of a component with an option that its service would reject. Other problems come first.
func invalidOption(o Observed, s v1alpha1.ComponentStatus) (v1alpha1.State, string, string) {
	if s.State == v1alpha1.Degraded {
		return s.State, s.Reason, s.Message + "; " + o.InvalidOptions
	}
	return v1alpha1.Degraded, ReasonInvalidOption, o.InvalidOptions
}

func paused(w *Workload) (v1alpha1.State, string, string) {
	const message = "paused by annotation " + v1alpha1.AnnotationPaused
	if w == nil {
		return v1alpha1.Waiting, ReasonPaused, message
	}
	if w.Wanted == 0 && w.Kind == "Deployment" || strings.Contains(w.Label, v1alpha1.LabelNoNode) {
		return v1alpha1.Waiting, ReasonPaused, "stopped, and " + message // the cloud, or the operation that stopped it, names what starts it
	}
	state, reason, m := w.judge()
	if state == v1alpha1.Available {
		return state, ReasonPaused, message
	}
	return state, reason, m
}

// WhilePaused returns the status of a component while the cloud is paused: it is derived from the workload alone, nil if it does not exist.
func WhilePaused(c v1alpha1.ComponentStatus, w *Workload, now time.Time) v1alpha1.ComponentStatus {
	if c.State == v1alpha1.Disabled || w == nil && c.ObservedGeneration == 0 { // it has none, or that is known
		return c
	}
	state, reason, message := paused(w)
	if state != c.State {
		c.Since = metav1.NewTime(now.Truncate(time.Second))
	}
	c.State, c.Reason, c.Message, c.BlockedBy = state, reason, clip(message), nil
	w = cmp.Or(w, &Workload{})
	c.Replicas, c.Ready, c.ObservedGeneration = w.Wanted, w.Ready, w.ObservedGeneration
	return c
}

func effects(o Observed, before bool) (v1alpha1.State, string, string) {
	for _, e := range o.Effects {
		if e.Before != before {
			continue
		}
		switch {
		case e.Error != "":
			return v1alpha1.Degraded, ReasonEffectFailed, e.Key + ": " + e.Error
		case e.Waiting != "":
			return v1alpha1.Waiting, ReasonEffectPending, e.Key + " waits for " + e.Waiting
		default:
			return v1alpha1.Provisioning, ReasonEffectPending, e.Key + " is in progress"
		}
	}
	return "", "", ""
}

// Tag returns the digest or the tag of an image, "" if it has neither.
func Tag(image string) string {
	r := images.Split(image)
	return cmp.Or(r.Digest, r.Tag)
}

func clip(s string) string { return Clip(s, messageLimit) }

// Clip cuts a text after limit bytes, between characters. If it cuts, it appends "…" in addition.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// Note shortens a text for an event: the API server rejects more than 1024 bytes. Source: k8s.io/kubernetes pkg/apis/core/validation/events.go.
func Note(text string) string {
	const most = 1024
	if len(text) <= most {
		return text
	}
	return Clip(text, most-len("…"))
}

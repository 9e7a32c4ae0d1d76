// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/status"
)

// report returns the status of the cloud, its events, and what the next reconcile must know. It is pure.
func report(s State, d *Desired) (*status.Cloud, []pendingEvent, last) {
	before, out := s.Cloud.Status, status.Of(s.Cloud, s.Now)
	out.ObservedGeneration, out.Fixed = s.Cloud.Generation, admission.Fixed(&s.Cloud.Spec)
	out.Fixed[component.CloudID] = idOf(s)
	out.Effects, out.Certificates = s.recorded(), d.Certificates.Status
	seen := observe(s, d)
	out.Components = nil
	for _, name := range d.catalog.names {
		c := d.component(name)
		one := status.Component(observed(s, d, c, seen[name]))
		one.Message = finding.Here(redact(one.Message, d.Credentials), s.Cloud.Namespace, s.Cloud.Name)
		out.Components = append(out.Components, one)
		if legacy := out.Legacy.Workload(c.StatusKey); c.StatusKey != "" && legacy != nil {
			*legacy = status.Legacy(c.Resolved, one)
		}
	}
	conditions(s, d, out)
	out.Version = status.Version(out.Version, d.Cluster.Version, out.Components)
	out.Phase = status.Phase(out.Components, out.Version, d.Cluster.Version)
	if out.Rollout = nil; s.Releases.rollout != nil {
		out.Phase, out.Rollout = s.Releases.rollout.phase(), s.Releases.rollout.seen()
	}
	next := s.Last
	var nodes []pendingEvent
	nodes, next.lost = nodeEvents(s)
	if next.refusals++; !s.Done.Refused {
		next.refusals = 0
	}
	next.served = servedBy(s, d, seen)
	now := out.OnecloudClusterStatus
	return out, slices.Concat(conditionEvents(before, now), transitions(before, now), nodes), next
}

// conditions sets the conditions of the cloud as a whole, and records the release in force.
func conditions(s State, d *Desired, out *status.Cloud) {
	out.Summarize()
	if s.Releases.waiting != "" {
		out.VersionWaits(s.Releases.waiting, s.Releases.current.Version, s.Releases.cannotMove)
	}
	out.HighlyAvailable(d.Cluster, s.Live.nodes, s.Live.pods)
	surroundings(s, out)
	out.Ignored(ignored(s, d))
	out.UpdateAvailable(d.release.pending, version.Version)
	if current := s.Releases.current; current != nil {
		out.Release.Version, out.Release.Revision = current.Version, current.Revision
		if meta.IsStatusConditionTrue(out.Conditions, v1alpha1.ConditionReady) {
			out.Release.Good = current.Revision
		}
	}
}

// surroundings sets the conditions that depend on nothing that the operator does, so that they hold for a paused or deleted cloud, too.
func surroundings(s State, out *status.Cloud) {
	out.UpdateFailed(s.Releases.failed) // an update of a paused cloud is refused
	out.NodesReady(s.Live.nodes, s.Live.pods)
	out.DatabaseRedundant(s.Cloud.Spec.MySQL.Host, s.Live.redundancy)
	var reports map[string]certreport.Report
	if cm := s.Live.configMap(certreport.ConfigMap); cm != nil {
		reports = certreport.All(cm.Data)
	}
	out.NodeCertificates(reports)
	var history backup.History
	if cm := s.Live.configMap(backup.HistoryName); cm != nil {
		history, _ = backup.ParseHistory(cm.Data[backup.HistoryKey]) // a damaged history counts as none: the next backup writes a new one
	}
	job, _ := s.Live.objects[engine.Key{GVK: batchv1.SchemeGroupVersion.WithKind("CronJob"), Namespace: s.Live.namespace, Name: s.Cloud.Name + "-backup"}].(*batchv1.CronJob)
	out.ProveBackups(history, job)
}

// servedBy returns the hash of the CA certificates that all pods run with, by Secret.
func servedBy(s State, d *Desired, seen map[string]observation) map[string]string {
	if slices.ContainsFunc(d.Components, func(c *target) bool {
		o := seen[c.Name]
		return c.Enabled && (brokenBy(s, d, c) != nil || o.paused || len(o.gates) > 0 || !o.serving)
	}) {
		return map[string]string{}
	}
	return maps.Clone(d.Certificates.Trust)
}

// goesOn reports whether the reported state allows another reconcile immediately: the next step of a CA rotation, or an option that depends on
// whether the identity service has the administrator's password.
func (l last) goesOn(s State, d *Desired) bool {
	for secret, hash := range l.served {
		if d.Certificates.Rotating[secret] && s.Last.served[secret] != hash {
			return true
		}
	}
	return s.passwordTaken() != d.passwordTaken
}

// Summary is what one reconcile did and left undone.
type Summary struct {
	Changes []engine.Change
	// Open counts the effects that are not done.
	Open map[effects.State]int
	// AuditAt is when the next audit is due; zero means never.
	AuditAt time.Time
}

// summary returns the values for the metrics.
func summary(s State, d *Desired, next last, audits bool) Summary {
	out := Summary{Changes: s.Done.Changes, Open: map[effects.State]int{}}
	if audits {
		out.AuditAt = next.nextAudit
	}
	for _, e := range d.Effects {
		if o, looked := s.Done.Effects[e.Key]; looked && o.State != effects.Done {
			out.Open[o.State]++
		}
	}
	return out
}

// observed returns the input of package status for a component.
func observed(s State, d *Desired, c *target, seen observation) status.Observed {
	done := s.outcome(c.Name)
	o := status.Observed{
		Name: c.Name, Previous: previous(s.Cloud.Status, c.Name), Resolved: c.Resolved, Problem: c.Problem, InvalidOptions: c.invalid,
		Held: c.held, BlockedBy: seen.gates, Workload: seen.workload, Current: seen.current, Copies: seen.copies, Paused: seen.paused, Left: c.paused, Now: s.Now, Kept: done.kept,
	}
	if err := brokenBy(s, d, c); err != nil && c.Problem == "" {
		o.Refused, o.RefusedReason = err.Error(), status.ReasonNotApplied
	}
	for _, r := range done.refusals {
		if o.Refused == "" || o.RefusedReason == engine.ReasonTerminating {
			o.Refused, o.RefusedReason = r.Error(), r.Reason
		}
	}
	for _, e := range d.Effects {
		out, looked := s.Done.Effects[e.Key]
		if e.Component != c.Name || !looked || out.State == effects.Done {
			continue
		}
		one := status.Effect{Key: e.Key, Before: e.Stage == effects.Before, Waiting: strings.Join(out.For, ", ")}
		if out.Err != nil && out.State == effects.Failed {
			one.Error = out.Err.Error()
		}
		o.Effects = append(o.Effects, one)
		if out.State != effects.Pending || !one.Before {
			continue
		}
		for _, name := range out.For {
			if d.component(name) != nil && !slices.Contains(o.BlockedBy, name) {
				o.BlockedBy = append(slices.Clone(o.BlockedBy), name)
			}
		}
	}
	return o
}

// ignored returns the fields of the spec without effect, and the reason of the condition that reports them.
func ignored(s State, d *Desired) (reason string, list []string) {
	for _, n := range d.Notices {
		list = append(list, n.String())
		if n.Unknown {
			reason = status.ReasonUnknownFields
		} else if reason == "" {
			reason = status.ReasonWithoutEffect
		}
	}
	for _, name := range s.Paused.unknown {
		reason = status.ReasonUnknownFields
		list = append(list, fmt.Sprintf("annotation %s: component %q does not exist", v1alpha1.AnnotationPaused, name))
	}
	return reason, list
}

// redact removes the secrets of the cloud from errors and logs of services.
func redact(s string, secrets component.Credentials) string {
	if s == "" {
		return s
	}
	const short = 6 // shorter ones would mask ordinary words
	for _, secret := range secrets {
		if len(secret) < short {
			continue
		}
		s = strings.ReplaceAll(s, secret, "***")
		// A long message may have been cut in the middle of a secret.
		for n := len(secret) - 1; n >= short && strings.Contains(s, "…"); n-- {
			s = strings.ReplaceAll(s, secret[:n]+"…", "***…")
		}
	}
	return s
}

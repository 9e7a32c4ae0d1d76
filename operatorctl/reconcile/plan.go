// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Plan is the work of one round of a reconcile. Further rounds follow while effects of the previous one make more possible.
type Plan struct {
	// Defaults are written into the spec, Secrets holds the certificates; both only in the first round.
	Defaults *unstructured.Unstructured
	Secrets  []client.Object
	// Base holds configuration, secrets, claims and Services, Workloads those whose gates are open.
	Base, Workloads []item
	// Effects are checked in this round; they may query the components in Available and Serving.
	Effects            []effects.Effect
	Available, Serving map[string]bool
	// Audit is true if completed effects are verified again.
	Audit bool
}

// item is an object of a component to apply as rendered now.
type item struct {
	target *target
	want   want
}

// observation is the observed state of one component.
type observation struct {
	// workload is the live one, nil if there is none. copies are its read-only replicas and its copies for zones.
	workload *status.Workload
	copies   []status.Copy
	// current is true if the live workload is as rendered, paused if a user paused it.
	current, paused bool
	// gates are the components that must be Available before its workload is created or changed.
	gates []string
	// serving means that the workload runs as rendered; available also that all effects that others wait for are done.
	serving, available bool
}

// planRound plans one round. It is pure.
func planRound(s State, d *Desired, round int) Plan {
	seen := observe(s, d)
	p := Plan{Available: map[string]bool{}, Serving: map[string]bool{}, Audit: s.Audit && round == 0}
	if round == 0 {
		p.Secrets = certificateObjects(s)
		if d.defaultsDue {
			p.Defaults = d.Defaults.DeepCopy()
			// Only replace the version that was read: a default must not overwrite a choice that a user makes at the same time.
			p.Defaults.SetUID(s.Cloud.UID)
			p.Defaults.SetResourceVersion(s.Cloud.ResourceVersion)
		}
	}
	for _, c := range d.Components {
		o := seen[c.Name]
		p.Serving[c.Name], p.Available[c.Name] = o.serving, o.available
		p.Effects = append(p.Effects, lists.Filter(d.Effects, func(e effects.Effect) bool { return e.Component == c.Name && !c.paused })...)
		if !c.Enabled || c.paused || brokenBy(s, d, c) != nil {
			continue
		}
		ready := workloadReady(s, d, c, o)
		for _, w := range c.wants {
			switch {
			case w.role == roleBase && round == 0:
				p.Base = append(p.Base, item{c, w})
			case w.role != roleBase && (ready || w.stopped && !s.outcome(c.Name).tried) && !isPaused(s, w.key): // stopping waits for nothing
				p.Workloads = append(p.Workloads, item{c, w})
			}
		}
	}
	return p
}

// workloadReady reports whether a workload can be applied now: its gates are open, the effects before it are done, and it was not tried yet.
func workloadReady(s State, d *Desired, c *target, o observation) bool {
	_, has := c.workload()
	return has && len(o.gates) == 0 && !s.outcome(c.Name).tried && done(s, d, c, effects.Before, true) && triedFirst(s, d, c)
}

// triedFirst reports whether the effects that must be tried before a component's workload changes were tried.
func triedFirst(s State, d *Desired, c *target) bool {
	return !slices.ContainsFunc(d.Effects, func(e effects.Effect) bool {
		_, tried := s.Done.Effects[e.Key]
		return e.Component == c.Name && e.TryFirst && !tried && s.Cloud.Status.Effects[e.Key] != e.Hash
	})
}

// brokenBy returns the error that keeps a component from its desired state, nil if there is none.
func brokenBy(s State, d *Desired, c *target) error {
	if c.err != nil {
		return c.err
	}
	if err := s.outcome(c.Name).err; err != nil {
		return err
	}
	return wrongMembers(s, d, c)
}

// done reports whether all effects of a stage are done with their current hash. Others do not wait for effects that are Aside; the component's own
// workload waits for all.
func done(s State, d *Desired, c *target, stage effects.Stage, all bool) bool {
	for _, e := range d.Effects {
		if e.Component != c.Name || e.Stage != stage || e.Aside && !all || s.Cloud.Status.Effects[e.Key] == e.Hash {
			continue
		}
		if o := s.Done.Effects[e.Key]; o.State != effects.Done || o.Effect.Hash != e.Hash {
			return false
		}
	}
	return true
}

// observe determines from the live objects which components serve as rendered, and which are Available: effects may query those, and components that
// come after them may start.
func observe(s State, d *Desired) map[string]observation {
	out := map[string]observation{}
	for _, c := range d.Components {
		var o observation
		if c.Enabled && brokenBy(s, d, c) == nil {
			o = observeOne(s, c)
			o.available = o.serving && (c.paused || done(s, d, c, effects.Before, false) && done(s, d, c, effects.After, false))
		}
		out[c.Name] = o
	}
	for _, c := range d.Components {
		o := out[c.Name]
		for _, n := range c.After {
			if dep := d.component(n); dep != nil && dep.Enabled && !out[n].available { // a component outside this cloud need not be waited for
				o.gates = append(o.gates, n)
			}
		}
		out[c.Name] = o
	}
	return out
}

// observeOne observes whether the rendered workload is live and its pods are ready. A component without a workload serves.
func observeOne(s State, c *target) (o observation) {
	w, ok := c.workload()
	if c.Workload.Kind == component.NoWorkload || !ok {
		o.serving = true
		return o
	}
	live := s.Live.objects[w.key]
	if live == nil {
		return o
	}
	o.workload = status.WorkloadOf(live, s.seen())
	copies := lists.Filter(c.wants, func(w want) bool { return w.role == roleCopy && w.key.GVK.Kind == "Deployment" })
	o.copies = lists.Map(copies, func(w want) status.Copy {
		return status.Copy{Name: w.key.Name, Workload: status.WorkloadOf(s.Live.objects[w.key], s.seen())}
	})
	if o.paused = c.paused || isPaused(s, w.key); o.paused {
		o.serving = o.workload.Serving() // as the user who paused it wants
		return o
	}
	if o.current = live.GetAnnotations()[engine.HashAnnotation] == w.applied(); w.stopped {
		return o // no component needs it
	}
	// While a cloud is being created, no user depends on it yet: later components do not wait for earlier ones to prove stable.
	o.serving = o.current && (o.workload.Serving() || s.Cloud.Status.Version == "" && o.workload.Started())
	return o
}

// isPaused reports whether a user paused a live workload.
func isPaused(s State, key engine.Key) bool {
	live := s.Live.objects[key]
	return live != nil && live.GetAnnotations()[v1alpha1.AnnotationPaused] == "true"
}

// canProgress reports whether anything that waited can continue now.
func canProgress(s State, d *Desired) bool {
	seen := observe(s, d)
	for _, c := range d.Components {
		if !c.Enabled || c.paused || brokenBy(s, d, c) != nil {
			continue
		}
		if workloadReady(s, d, c, seen[c.Name]) {
			return true
		}
		for _, e := range d.Effects {
			o, looked := s.Done.Effects[e.Key]
			if e.Component == c.Name && looked && o.State == effects.Pending && o.Retry.IsZero() && canAsk(seen, e.Needs, c.Name) {
				return true
			}
		}
	}
	return false
}

// canAsk reports whether an effect may query all components that it needs: they are Available, or it is the component's own, which serves.
func canAsk(seen map[string]observation, names []string, self string) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !seen[n].available && (n != self || !seen[n].serving) })
}

// dueTime returns the earliest time at which an effect is retried, a node has been joining for too long, or a status message changes with time alone.
func dueTime(s State, d *Desired) (next time.Time) {
	for _, n := range s.Live.nodes {
		if n.Joining(s.Now) {
			next = wait.Earliest(next, n.Joins)
		}
	}
	for _, o := range s.Done.Effects {
		next = wait.Earliest(next, o.Retry)
	}
	for _, o := range observe(s, d) {
		if o.workload != nil {
			next = wait.Earliest(next, o.workload.Due)
		}
		for _, c := range o.copies {
			if c.Workload != nil {
				next = wait.Earliest(next, c.Workload.Due)
			}
		}
	}
	return next
}

// wrongMembers returns an error for a component whose members read their number from their volumes, if there is another number of volumes. Members
// with data would form the cluster that they know, those without another one, behind the same Service.
func wrongMembers(s State, d *Desired, c *target) error {
	if !c.Workload.FixedMembers || !c.Enabled {
		return nil
	}
	name, claims := d.Cluster.Object(c.Name), 0
	if s.Live.objects[d.key("StatefulSet", c.Name, "")] != nil {
		return nil // it runs: admission keeps its size fixed
	}
	for key := range s.Live.objects {
		if key.GVK.Kind == "PersistentVolumeClaim" && strings.HasPrefix(key.Name, "data-"+name+"-") {
			claims++
		}
	}
	if claims == 0 || claims == int(c.Replicas) {
		return nil
	}
	return fmt.Errorf("volumes of %s with %s exist, but spec.%s.%s is %d: restore the previous value, "+
		"or delete the volumes and their data: kubectl -n %s delete pvc -l %s=%s,%s=%s",
		c.Name, lists.Counted(claims, "member"), strings.Join(c.SpecPath(), "."), c.Workload.ReplicasKey, c.Replicas, d.Cluster.Namespace,
		v1alpha1.LabelComponent, c.Name, v1alpha1.LabelInstance, s.Live.instance)
}

// cleanup is the last step of a reconcile.
type cleanup struct {
	deletes []engine.Key
	patches []adopt.Patch
}

// planCleanup lists objects that we or the earlier operator applied and that are no longer rendered. It keeps claims and certificates, everything of
// a component that could not be rendered or is paused, and the options of users for a disabled component. It is pure.
func planCleanup(s State, d *Desired) cleanup {
	wanted := map[engine.Key]bool{}
	kept := map[string]bool{}
	for _, c := range d.Components {
		if c.paused || brokenBy(s, d, c) != nil {
			kept[c.Name] = true
		}
		for _, w := range c.wants {
			wanted[w.key] = wanted[w.key] || c.Enabled
		}
	}
	seen := observe(s, d)
	out := cleanup{}
	for key, o := range s.Live.objects {
		if wanted[key] || o.GetLabels()[v1alpha1.LabelComponent] == "" || kept[d.catalog.componentOf(o)] || key.GVK.Kind == "PersistentVolumeClaim" ||
			!o.GetDeletionTimestamp().IsZero() || o.GetAnnotations()[engine.HashAnnotation] == "" && !leftover(s, d, seen, o) || hasOptions(o) {
			continue
		}
		out.deletes = append(out.deletes, key)
	}
	for _, c := range d.Components { // a recreated etcd does not join the earlier one
		if cm := s.Live.configMap(d.Cluster.State(c.Name)); cm != nil && !c.Enabled && !kept[c.Name] {
			out.deletes = append(out.deletes, coreKey("ConfigMap", s.Live.namespace, cm.Name))
		}
	}
	if name := secrets.IngressSecret(s.Cloud.Name); !d.Certificates.Status.Supplied && s.Live.secret(name) != nil {
		out.deletes = append(out.deletes, coreKey("Secret", s.Live.namespace, name))
	}
	planLeftovers(s, d, seen, &out)
	revisions := slices.Sorted(maps.Keys(s.Releases.kept))
	old, back := revisions[:max(0, len(revisions)-release.Keep)], 0
	if len(old) > 0 {
		back = wayBack(s, revisions)
	}
	for _, revision := range old {
		if revision != s.Cloud.Status.Release.Good && revision != back &&
			(s.Releases.rollout == nil || revision != s.Releases.rollout.From && revision != s.Releases.rollout.Of) {
			out.deletes = append(out.deletes, coreKey("Secret", s.Live.namespace, s.Releases.kept[revision].Name))
		}
	}
	return out
}

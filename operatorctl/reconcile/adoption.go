// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/status"
)

// The adoption of a cloud of the earlier operator is described in docs/decisions/0010-adoption.md. Objects that the earlier operator left lack
// engine.HashAnnotation: this operator sets it when it first applies an object.

// ReasonAdopted is the reason of events about adopted objects.
const ReasonAdopted = "Adopted"

// newApplier returns an applier that adopts the earlier operator's objects; the file in a ConfigMap stays until no pod mounts it.
func newApplier(c client.Client) *engine.Applier {
	applier := engine.NewApplier(c, c)
	applier.Earlier = v1alpha1.ManagerEarlier
	applier.Take = func(k engine.Key) func(fieldpath.Path) bool {
		if k.GVK.Kind != "ConfigMap" {
			return nil
		}
		file := fieldpath.MakePathOrDie("data", adopt.ConfigKey)
		return func(p fieldpath.Path) bool { return !p.Equals(file) }
	}
	return applier
}

// earlierCredentials returns the earlier operator's values of missing credentials. An unreadable record is an error: existing passwords are not
// generated again.
func earlierCredentials(s State, c catalogue, missing []string) (map[string]string, error) {
	var record adopt.Record
	if cm := s.Secrets.record; cm != nil {
		var err error
		if record, err = adopt.ParseRecord(cm.Data); err != nil {
			return nil, fmt.Errorf("reading the earlier operator's passwords from ConfigMap %q: %w; restore the ConfigMap, because existing passwords are not regenerated",
				cm.Name, err)
		}
	}
	return record.Known(c.components, missing, &s.Cloud.Spec, func(name string) string {
		if cm := earlierConfig(s, name); cm != nil {
			return cm.Data[adopt.ConfigKey]
		}
		return ""
	}), nil
}

// earlierConfig returns the ConfigMap of a component as the earlier operator left it; nil if there is none, or it is already adopted.
func earlierConfig(s State, name string) *corev1.ConfigMap {
	cm := s.Live.configMap(s.Cloud.Name + "-" + name)
	if cm == nil || cm.Annotations[engine.HashAnnotation] != "" || !adopt.IsEarlier(cm, metav1.IsControlledBy(cm, s.Cloud)) {
		return nil
	}
	return cm
}

// adoptionDue reports whether a ConfigMap of the earlier operator is not adopted yet.
func adoptionDue(s State) bool {
	for key, o := range s.Live.objects {
		if key.GVK.Kind == "ConfigMap" && o.GetAnnotations()[engine.HashAnnotation] == "" {
			return true
		}
	}
	return false
}

// adopt keeps the options that users changed in the earlier operator's files. It runs before the first apply, after which they cannot be found any
// more. A component that would switch to another database is left alone.
func (a actor) adopt(ctx context.Context, s State, d *Desired) {
	here := d.Cluster.MysqlAddress()
	for _, c := range d.Components {
		cm := earlierConfig(s, c.Name)
		if cm == nil || c.err != nil || c.paused || c.Config == nil || c.Config.Of != "" || c.Config.Sealed != "" {
			continue
		}
		options, err := adopt.PlanConfig(c.Component, cm, here, func() (map[string]string, []string, error) {
			return render.Options(c.Resolved, inputs(d, c))
		})
		if err == nil {
			err = a.keepOptions(ctx, s, d, c, cm, options)
		}
		if err != nil {
			s.outcome(c.Name).err, s.Done.Refused = fmt.Errorf("taking over ConfigMap %s of the earlier operator: %w", cm.Name, err), true
		}
	}
}

// keepOptions writes the options of users under their own field manager.
func (a actor) keepOptions(ctx context.Context, s State, d *Desired, c *target, cm *corev1.ConfigMap, options adopt.Options) error {
	switch {
	case options.Unclear:
		a.event(s.Cloud, warning(subject(cm.Name), ReasonAdopted,
			"ConfigMap %s was edited (%s), and the edited options cannot be identified: kept %s; set your other options again",
			cm.Name, options.Editor, options.List()))
	case len(options.Kept) > 0 && c.Config.Plain == "":
		a.event(s.Cloud, normal(subject(cm.Name), ReasonAdopted, "ConfigMap %s: kept as your options: %s", cm.Name, options.List()))
	}
	if len(options.Kept) == 0 {
		return nil
	}
	now := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name, ResourceVersion: cm.ResourceVersion}, Data: options.Kept,
	}
	if err := a.client.Patch(ctx, now, client.Apply, client.FieldOwner(v1alpha1.ManagerAdoption), client.ForceOwnership); err != nil { //nolint:staticcheck // partial object
		return err
	}
	s.Live.objects[coreKey("ConfigMap", now.Namespace, now.Name)] = now
	if c.Enabled {
		return nil
	}
	// A disabled component is not rendered, so apply an empty ConfigMap, which makes it ours. The cleanup removes the file.
	_, err := a.applier.Apply(ctx, []client.Object{own(s.Cloud, &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: now.Name, Namespace: now.Namespace, ResourceVersion: now.ResourceVersion, Labels: render.ComponentLabels(inputs(d, c))},
	})})
	return err
}

// planLeftovers removes what the earlier operator left and nothing needs any more: its files with passwords, once no pod mounts them, and its bare
// etcd pods, which would answer requests along with ours.
func planLeftovers(s State, d *Desired, seen map[string]observation, out *cleanup) {
	for _, c := range d.Components {
		cm := s.Live.configMap(d.Cluster.Object(c.Name))
		if cm == nil || c.paused || c.Config == nil || c.Config.Of != "" || c.Config.Plain != "" || cm.Annotations[engine.HashAnnotation] == "" {
			continue
		}
		if adopt.HasFile(cm) && movedOn(s, d, seen, c) {
			out.patches = append(out.patches, adopt.DropFile(cm))
		}
	}
	for i := range s.Live.pods {
		pod := &s.Live.pods[i]
		if !metav1.IsControlledBy(pod, s.Cloud) || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if c := d.component(d.catalog.componentOf(pod)); c != nil && !c.paused && c.Enabled && seen[c.Name].workload != nil {
			out.deletes = append(out.deletes, coreKey("Pod", pod.Namespace, pod.Name))
		}
	}
}

// movedOn reports whether all pods that mounted a component's earlier file run with the new one.
func movedOn(s State, d *Desired, seen map[string]observation, c *target) bool {
	for _, user := range d.Components {
		if user.Name != c.Name && (user.Config == nil || user.Config.Of != c.Name) {
			continue
		}
		if user.Enabled && !seen[user.Name].serving {
			return false
		}
		for _, w := range user.wants {
			if live := s.Live.objects[w.key]; live != nil && w.role == roleCopy {
				if workload := status.WorkloadOf(live, s.seen()); workload != nil && !workload.Serving() {
					return false
				}
			}
		}
	}
	return true
}

// leftover reports whether an object that was never applied is the earlier operator's, belongs to a component that we know, and is not needed any
// more: the component is disabled, or the whole cloud has moved on.
func leftover(s State, d *Desired, seen map[string]observation, o client.Object) bool {
	c := d.component(d.catalog.componentOf(o))
	if c == nil || !metav1.IsControlledBy(o, s.Cloud) {
		return false
	}
	return !c.Enabled || !slices.ContainsFunc(d.Components, func(c *target) bool { return c.Enabled && !seen[c.Name].available })
}

// hasOptions reports whether an object holds options of users, which are kept when the component is disabled.
func hasOptions(o client.Object) bool {
	cm, ok := o.(*corev1.ConfigMap)
	return ok && len(render.Chosen(cm)) > 0
}

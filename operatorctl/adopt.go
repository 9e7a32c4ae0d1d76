// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/status"
)

// A cloud of the earlier operator is taken over as docs/decisions/0010-adoption.md says. What it left is known by the absence of
// engine.HashAnnotation: an object that this operator has applied once has it.

// ReasonAdopted is the reason of events that tell what was taken over.
const ReasonAdopted = "Adopted"

// newApplier takes over objects of the earlier operator; of their ConfigMaps the file stays until no pod mounts it any more.
func newApplier(c client.Client) *engine.Applier {
	a := engine.NewApplier(c, c)
	a.Earlier = v1alpha1.ManagerEarlier
	a.Take = func(k engine.Key) func(fieldpath.Path) bool {
		if k.GVK.Kind != "ConfigMap" {
			return nil
		}
		file := fieldpath.MakePathOrDie("data", adopt.ConfigKey)
		return func(p fieldpath.Path) bool { return !p.Equals(file) }
	}
	return a
}

// adoptSpec makes defaults of ours of those that the earlier operator wrote into the spec.
func (p *pass) adoptSpec(ctx context.Context) error {
	entries, changed, err := engine.Transfer(p.cr.ManagedFields, []string{v1alpha1.ManagerEarlier}, v1alpha1.ManagerDefaults,
		v1alpha1.GroupVersion.String(), adopt.Derived(&p.cr.Spec))
	if err != nil || !changed {
		return err
	}
	patch, err := engine.TransferPatch(entries, p.cr.ResourceVersion)
	if err != nil {
		return err
	}
	cr := p.cr.DeepCopy()
	if err := p.r.client.Patch(ctx, cr, patch, client.FieldOwner(v1alpha1.ManagerDefaults)); err != nil {
		return fmt.Errorf("taking over the defaults in the spec: %w", err)
	}
	p.wrote(cr)
	p.event(wholeCloud, corev1.EventTypeNormal, ReasonAdopted, "took over the defaults that the earlier operator wrote into the spec")
	return nil
}

// earlierCredentials are what the earlier operator knew of components that miss a credential: from its record, which is read past the
// cache, else from the component's own file. An unreadable record is an error: a password that exists is not made anew.
func (p *pass) earlierCredentials(ctx context.Context, missing []string) (map[string]string, error) {
	name := p.cr.Name + "-" + adopt.ClusterConfig
	cm := &corev1.ConfigMap{}
	err := p.r.direct.Get(ctx, client.ObjectKey{Namespace: p.cr.Namespace, Name: name}, cm)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the earlier operator's passwords: %w", err)
	}
	var record adopt.Record
	if err == nil {
		if record, err = adopt.ParseRecord(cm.Data); err != nil {
			return nil, fmt.Errorf("reading the earlier operator's passwords from ConfigMap %q: %w; restore it: passwords that exist are not made anew", name, err)
		}
	}
	known := map[string]string{}
	for _, c := range p.r.catalog {
		keys := slices.DeleteFunc(component.CredentialKeys(c), func(k string) bool { return !slices.Contains(missing, k) })
		if len(keys) == 0 {
			continue
		}
		have := record.Credentials(c)
		if c.Name == "minio" && record != nil && p.cr.Spec.Minio.Enable {
			have = map[string]string{component.MinioSecretKey: adopt.MinioSecretKey} // it is installed already, with this one
		}
		if slices.ContainsFunc(keys, func(k string) bool { return have[k] == "" }) {
			have = merged(have, p.fileCredentials(c))
		}
		for k, v := range have {
			if component.IsName(k) || slices.Contains(keys, k) {
				known[k] = v
			}
		}
	}
	return known, nil
}

// fileCredentials are those in the earlier operator's file of a component.
func (p *pass) fileCredentials(c component.Component) map[string]string {
	if cm := p.earlierConfig(c.Name); cm != nil {
		return adopt.FileCredentials(c, cm.Data[adopt.ConfigKey])
	}
	return nil
}

// merged is a with what only b has.
func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{b, a} {
		for k, v := range m {
			if v != "" {
				out[k] = v
			}
		}
	}
	return out
}

// earlierConfig is the ConfigMap of a component as the earlier operator left it; nil if there is none, or it is taken over.
func (p *pass) earlierConfig(name string) *corev1.ConfigMap {
	cm := p.configMap(name)
	if cm == nil || cm.Annotations[engine.HashAnnotation] != "" {
		return nil
	}
	ours := cm.Annotations[adopt.LastApplied] != "" || metav1.IsControlledBy(cm, p.cr) || slices.ContainsFunc(cm.ManagedFields, isEarlier)
	if _, file := cm.Data[adopt.ConfigKey]; !file || !ours {
		return nil
	}
	return cm
}

func isEarlier(m metav1.ManagedFieldsEntry) bool { return m.Manager == v1alpha1.ManagerEarlier }

// adoptConfigs makes people's of what people had changed in the earlier operator's files, before the first apply: afterwards nobody can
// tell. A component that could be brought to another database by that is left as it is.
func (p *pass) adoptConfigs(ctx context.Context) {
	for _, c := range p.parts {
		if c.err != nil || c.left || c.Config == nil || c.Config.Of != "" || c.Config.Sealed != "" {
			continue
		}
		if cm := p.earlierConfig(c.Name); cm != nil {
			if err := p.adoptConfig(ctx, c, cm); err != nil {
				c.err, p.refused = fmt.Errorf("taking over ConfigMap %s of the earlier operator: %w", cm.Name, err), true
			}
		}
	}
}

func (p *pass) adoptConfig(ctx context.Context, c *part, cm *corev1.ConfigMap) error {
	editor := editorOf(cm)
	kept := map[string]string{}
	if c.Config.Plain != "" {
		if adopt.Edited(cm) && editor == "" {
			kept[adopt.ConfigKey] = cm.Data[adopt.ConfigKey]
		}
	} else {
		here := net.JoinHostPort(p.cluster.MysqlHost, strconv.Itoa(p.cluster.MysqlPort))
		if other := adopt.OtherServer(c.Component, cm.Data[adopt.ConfigKey], here); other != "" {
			return fmt.Errorf("its sql_connection leads to %s and spec.mysql to %s: write into the ConfigMap which of the two holds the data", other, here)
		}
		ours, secret, err := render.Options(c.Resolved, p.inputs(c, nil))
		if err != nil {
			return err
		}
		options, err := adopt.PeoplesOptions(c.Component, cm, ours, secret, editor != "")
		if err != nil {
			return err
		}
		kept = options.Kept
		if options.Unclear {
			p.event(subject(cm.Name), corev1.EventTypeWarning, ReasonAdopted, "ConfigMap %s was edited (%s) and nothing tells which options: kept are %s; what else you chose, set again",
				cm.Name, editor, list(options.Names()))
		} else if len(kept) > 0 {
			p.event(subject(cm.Name), corev1.EventTypeNormal, ReasonAdopted, "ConfigMap %s: kept as your options: %s", cm.Name, list(options.Names()))
		}
	}
	return p.keepOptions(ctx, c, cm, kept)
}

// keepOptions gives options an owner of their own.
func (p *pass) keepOptions(ctx context.Context, c *part, cm *corev1.ConfigMap, kept map[string]string) error {
	if len(kept) == 0 {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	u.SetNamespace(cm.Namespace)
	u.SetName(cm.Name)
	u.SetResourceVersion(cm.ResourceVersion)
	if err := unstructured.SetNestedStringMap(u.Object, kept, "data"); err != nil {
		return err
	}
	if err := p.r.client.Patch(ctx, u, client.Apply, client.FieldOwner(v1alpha1.ManagerAdoption), client.ForceOwnership); err != nil { //nolint:staticcheck // partial object
		return err
	}
	now := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, now); err != nil {
		return err
	}
	p.live.objects[engine.Key{GVK: u.GroupVersionKind(), Namespace: now.Namespace, Name: now.Name}] = now
	if c.Enabled {
		return nil
	}
	// It is not rendered, so it is applied here: empty, which makes it ours. settle removes the file.
	_, err := p.r.applier.Apply(ctx, []client.Object{p.own(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: now.Name, Namespace: now.Namespace, ResourceVersion: now.ResourceVersion, Labels: render.ComponentLabels(p.inputs(c, nil))},
	})})
	return err
}

// dropFile removes the earlier operator's file, which holds passwords, from a ConfigMap, and its record of it.
func (p *pass) dropFile(ctx context.Context, cm *corev1.ConfigMap) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:null}},"data":{%q:null}}`, cm.ResourceVersion, adopt.LastApplied, adopt.ConfigKey)
	o := cm.DeepCopy()
	if err := p.r.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(engine.FieldManager)); err != nil {
		return fmt.Errorf("removing the earlier file from ConfigMap %q: %w", cm.Name, err)
	}
	return nil
}

// editorOf is who wrote the earlier operator's file last, if not that; "somebody" if that is not known.
func editorOf(cm *corev1.ConfigMap) string {
	for _, m := range cm.ManagedFields {
		if slices.Contains(engine.DataKeys(m), adopt.ConfigKey) {
			if isEarlier(m) {
				return ""
			}
			return m.Manager
		}
	}
	return "somebody"
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// selectorOf gives the selector of a workload and the labels of its pods; nil for what has none.
func selectorOf(o client.Object) (*metav1.LabelSelector, map[string]string) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return w.Spec.Selector, w.Spec.Template.Labels
	case *appsv1.StatefulSet:
		return w.Spec.Selector, w.Spec.Template.Labels
	case *appsv1.DaemonSet:
		return w.Spec.Selector, w.Spec.Template.Labels
	}
	return nil, nil
}

// settle removes what the earlier operator left and nothing needs any more: its files with passwords, once no pod mounts them, and its
// bare etcd pods, which would answer beside ours.
func (p *pass) settle(ctx context.Context) {
	var errs []error
	for _, c := range p.parts {
		cm := p.configMap(c.Name)
		if cm == nil || c.left || c.Config == nil || c.Config.Of != "" || c.Config.Plain != "" || cm.Annotations[engine.HashAnnotation] == "" {
			continue
		}
		_, file := cm.Data[adopt.ConfigKey]
		if (file || cm.Annotations[adopt.LastApplied] != "") && p.movedOn(c) {
			errs = append(errs, p.dropFile(ctx, cm))
		}
	}
	for i := range p.live.pods {
		pod := &p.live.pods[i]
		etcd := p.byName[p.componentOf(pod)]
		if !metav1.IsControlledBy(pod, p.cr) || !pod.DeletionTimestamp.IsZero() || etcd == nil || etcd.left || !etcd.Enabled || etcd.workload == nil {
			continue
		}
		o := pod.DeepCopy()
		o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		errs = append(errs, p.r.applier.Delete(ctx, o))
	}
	if err := errors.Join(errs...); err != nil && !apierrors.IsConflict(err) {
		p.log.Warn("removing what the earlier operator left", "error", err)
		p.refused = true
	}
}

// movedOn tells whether every pod that mounted a component's earlier file runs on the new one.
func (p *pass) movedOn(c *part) bool {
	for _, user := range p.parts {
		if user.Name != c.Name && (user.Config == nil || user.Config.Of != c.Name) {
			continue
		}
		if user.Enabled && !user.serving {
			return false
		}
		for _, twin := range user.wants {
			if w := p.live.objects[twin.key]; w != nil && twin.role == roleTwin {
				if s := status.WorkloadOf(w, p.seen()); s != nil && !s.Serving() {
					return false
				}
			}
		}
	}
	return true
}

// leftover tells whether an object that was never applied is the earlier operator's, of a component we know, and not needed any more:
// the component is off, or the whole cloud has moved on.
func (p *pass) leftover(o client.Object) bool {
	c := p.byName[p.componentOf(o)]
	if c == nil || !metav1.IsControlledBy(o, p.cr) {
		return false
	}
	return !c.Enabled || !slices.ContainsFunc(p.parts, func(c *part) bool { return c.Enabled && !c.available })
}

// isPeoples tells whether an object holds what people chose, and must outlive the component's being off.
func isPeoples(o client.Object) bool {
	cm, ok := o.(*corev1.ConfigMap)
	return ok && len(PeoplesOptions(cm)) > 0
}

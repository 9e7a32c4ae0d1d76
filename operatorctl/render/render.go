// SPDX-License-Identifier: Apache-2.0

// Package render turns a resolved component into Kubernetes objects. It is pure and deterministic: the same inputs give the same bytes.
// Owner references are the engine's business.
package render

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Component renders all objects of one component, whether it is enabled or not: what to apply is the caller's decision.
func Component(r component.Resolved, in component.Inputs) (component.Objects, error) {
	in.Self = r
	if r.Problem != "" {
		return component.Objects{}, errors.New(r.Problem)
	}
	conf, err := configuration(r.Component, in)
	if err != nil {
		return component.Objects{}, fmt.Errorf("configuring %s: %w", r.Name, err)
	}
	o := component.Objects{Services: serviceObjects(in), Ingresses: ingresses(in)}
	if o.PVCs, err = claims(in); err != nil {
		return component.Objects{}, fmt.Errorf("spec.%s.requests.storage: %w", r.SpecKey, err)
	}
	if conf.public != nil {
		o.ConfigMaps = append(o.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta(in, ""), Data: conf.public})
	}
	if conf.secret != nil {
		o.Secrets = append(o.Secrets, &corev1.Secret{ObjectMeta: meta(in, ConfigSuffix), Type: corev1.SecretTypeOpaque, Data: conf.secret})
	}
	if o.Workload, err = workload(in, conf); err != nil {
		return component.Objects{}, fmt.Errorf("rendering %s: %w", r.Name, err)
	}
	if r.Adapt != nil {
		if err := r.Adapt(&o, in); err != nil {
			return component.Objects{}, fmt.Errorf("adapting %s: %w", r.Name, err)
		}
	}
	if err := readReplicas(&o, in); err != nil {
		return component.Objects{}, err
	}
	return o, zoneCopies(&o, in)
}

// List puts the objects in the order in which they are applied, each with its kind set.
func List(o component.Objects) []client.Object {
	var workloads []client.Object
	if o.Workload != nil {
		workloads = append(workloads, o.Workload)
	}
	out := slices.Concat(o.ConfigMaps, o.Secrets, o.PVCs, o.Services, workloads, o.Copies, o.Ingresses)
	for _, obj := range out {
		Kind(obj)
	}
	return out
}

// kinds are all kinds that may be rendered, in the order of their application. A type of the API has the name of its kind.
var kinds = []struct {
	version schema.GroupVersion
	object  client.Object
}{
	{corev1.SchemeGroupVersion, &corev1.ConfigMap{}},
	{corev1.SchemeGroupVersion, &corev1.Secret{}},
	{corev1.SchemeGroupVersion, &corev1.PersistentVolumeClaim{}},
	{corev1.SchemeGroupVersion, &corev1.Service{}},
	{appsv1.SchemeGroupVersion, &appsv1.Deployment{}},
	{appsv1.SchemeGroupVersion, &appsv1.StatefulSet{}},
	{appsv1.SchemeGroupVersion, &appsv1.DaemonSet{}},
	{batchv1.SchemeGroupVersion, &batchv1.CronJob{}},
	{networkingv1.SchemeGroupVersion, &networkingv1.Ingress{}},
}

// Kinds are an empty object of each kind that may be rendered; the operator caches, watches and prunes these.
func Kinds() []client.Object {
	var list []client.Object
	for _, k := range kinds {
		if obj, ok := k.object.DeepCopyObject().(client.Object); ok {
			list = append(list, Kind(obj))
		}
	}
	return list
}

// Kind sets the kind of an object of one of these, and returns it.
func Kind(obj client.Object) client.Object {
	for _, k := range kinds {
		if t := reflect.TypeOf(k.object); t == reflect.TypeOf(obj) {
			obj.GetObjectKind().SetGroupVersionKind(k.version.WithKind(t.Elem().Name()))
		}
	}
	return obj
}

// Labels of every object of a component; without extra pod labels they are also its selector.
func Labels(cluster, name string) map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.ValueName,
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy,
		v1alpha1.LabelInstance:  v1alpha1.InstancePrefix + cluster,
		v1alpha1.LabelComponent: name,
		v1alpha1.LabelApp:       name,
	}
}

// ComponentLabels are those of the component that is rendered.
func ComponentLabels(in component.Inputs) map[string]string {
	l := Labels(in.Cluster.Name, in.Self.Name)
	if in.Cluster.Instance != "" {
		l[v1alpha1.LabelInstance] = in.Cluster.Instance
	}
	maps.Copy(l, in.Self.Workload.PodLabels)
	return l
}

func meta(in component.Inputs, suffix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: in.Cluster.Object(in.Self.Name) + suffix, Namespace: in.Cluster.Namespace, Labels: ComponentLabels(in)}
}

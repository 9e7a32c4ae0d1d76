// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/render"
)

func tree(o client.Object) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

func untree(m map[string]any, o client.Object) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(m, o)
}

func set(m map[string]any, value any, path ...string) {
	// Only fails where a parent is no map, which the paths of the catalogue never make.
	_ = unstructured.SetNestedField(m, value, path...)
}

// children are the objects of a cloud, as they are.
func (w *world) children(ctx context.Context, ns string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, kind := range render.Kinds() {
		list := &unstructured.UnstructuredList{}
		gvk := kind.GetObjectKind().GroupVersionKind()
		gvk.Kind += "List"
		list.SetGroupVersionKind(gvk)
		if err := w.client.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}); err != nil {
			return nil, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			if u, ok := o.(*unstructured.Unstructured); ok {
				out = append(out, u)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bare is what a client would have sent to make an object, for another namespace.
func bare(o *unstructured.Unstructured, ns string) *unstructured.Unstructured {
	u := o.DeepCopy()
	u.Object["metadata"] = map[string]any{"name": o.GetName(), "namespace": ns, "labels": asAny(o.GetLabels()), "annotations": asAny(o.GetAnnotations())}
	// Nobody's: no operator is to take notice of it.
	u.SetLabels(without(o.GetLabels(), v1alpha1.LabelManagedBy, v1alpha1.LabelInstance))
	unstructured.RemoveNestedField(u.Object, "status")
	if u.GetKind() == "Service" {
		headless, _, _ := unstructured.NestedString(u.Object, "spec", "clusterIP")
		for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"} {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
		if headless == "None" {
			set(u.Object, headless, "spec", "clusterIP")
		}
		ports, _, _ := unstructured.NestedSlice(u.Object, "spec", "ports")
		for _, p := range ports {
			if m, ok := p.(map[string]any); ok {
				delete(m, "nodePort")
			}
		}
		set(u.Object, ports, "spec", "ports")
	}
	return u
}

func asAny(in map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range in {
		out[k] = v
	}
	return out
}

func without(in map[string]string, keys ...string) map[string]string {
	out := map[string]string{}
	for k, v := range in {
		if !slices.Contains(keys, k) {
			out[k] = v
		}
	}
	return out
}

// create creates a cloud and waits until it is ready. It returns how long that took.
func (w *world) create(ctx context.Context, cr *v1alpha1.OnecloudCluster) (time.Duration, error) {
	began := time.Now()
	if err := w.client.Create(ctx, cr.DeepCopy()); err != nil {
		return 0, err
	}
	err := w.untilReady(ctx, cr)
	return time.Since(began), err
}

func (w *world) untilReady(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: cr.Name}}
	return kube.WaitFor(ctx, w.client, o, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "there is none"
		}
		return ready(cr), missing(cr)
	}, func(string) {})
}

func ready(cr *v1alpha1.OnecloudCluster) bool {
	c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == cr.Generation && cr.Status.ObservedGeneration == cr.Generation
}

func missing(cr *v1alpha1.OnecloudCluster) string {
	var out []string
	for _, c := range cr.Status.Components {
		if !c.State.Settled() {
			out = append(out, fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message))
		}
	}
	for _, c := range cr.Status.Conditions {
		if c.Status == metav1.ConditionFalse {
			out = append(out, c.Type+" "+c.Reason+": "+c.Message)
		}
	}
	return strings.Join(out, "\n")
}

// remove deletes a cloud with its data and waits until it is gone.
func (w *world) remove(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: cr.Name}}
	if err := w.client.Delete(ctx, o); err != nil {
		return err
	}
	if err := kube.WaitGone(ctx, w.client, o, func(client.Object) string { return "it is there" }, func(string) {}); err != nil {
		return err
	}
	w.front.forget(cr.Namespace)
	return nil
}

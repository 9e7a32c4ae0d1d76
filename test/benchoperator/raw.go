// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/env"
)

// workers equals the number of workers of the operator.
const workers = 8

// each calls do for each element of a list, several at a time.
func each[E any](list []E, do func(E) error) error {
	return errors.Join(lists.Parallel(list, workers, func(_ int, one E) error { return do(one) })...)
}

// rawApply is a client without logic: it applies the same objects by server-side apply in another namespace, several at a time.
func (b *bench) rawApply(e *env.Env, objs []*unstructured.Unstructured) time.Duration {
	ns := b.namespace(e, "raw")
	copies := lists.Map(objs, func(o *unstructured.Unstructured) *unstructured.Unstructured { return bare(o, ns) })
	began := time.Now()
	b.no(each(copies, func(o *unstructured.Unstructured) error {
		return e.Client.Patch(b.ctx, o, client.Apply, client.FieldOwner("raw"), client.ForceOwnership) //nolint:staticcheck // as the operator does
	}))
	took := time.Since(began)
	b.no(e.Client.Delete(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	return took
}

// bare returns an object as a client would have sent it, in another namespace and without the labels by which the operator recognizes its objects.
func bare(o *unstructured.Unstructured, ns string) *unstructured.Unstructured {
	u := o.DeepCopy()
	labels := maps.Clone(o.GetLabels())
	delete(labels, v1alpha1.LabelManagedBy)
	delete(labels, v1alpha1.LabelInstance)
	u.Object["metadata"] = map[string]any{"name": o.GetName(), "namespace": ns}
	u.SetLabels(labels)
	u.SetAnnotations(o.GetAnnotations())
	delete(u.Object, "status")
	spec, ok := u.Object["spec"].(map[string]any)
	if u.GetKind() != "Service" || !ok {
		return u
	}
	for _, field := range []string{"clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"} {
		delete(spec, field)
	}
	if spec["clusterIP"] != "None" {
		delete(spec, "clusterIP")
	}
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		if m, ok := p.(map[string]any); ok {
			delete(m, "nodePort")
		}
	}
	return u
}

// flat returns the time from the creation of 50 Deployments with a Service each until all are Available.
func (b *bench) flat(e *env.Env) time.Duration {
	const n = 50
	ns := b.namespace(e, "flat")
	watch, err := e.Client.Watch(b.ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))
	b.no(err)
	defer watch.Stop()
	var objs []client.Object
	for i := range n {
		l := map[string]string{"app": fmt.Sprintf("d%d", i)}
		m := metav1.ObjectMeta{Namespace: ns, Name: l["app"], Labels: l}
		pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		objs = append(objs,
			&appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: l}, Template: pod}},
			&corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Selector: l, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}}})
	}
	began := time.Now()
	b.no(each(objs, func(o client.Object) error { return e.Client.Create(b.ctx, o) }))
	for available := map[string]bool{}; len(available) < n; {
		change, open := <-watch.ResultChan()
		if !open {
			b.Fatal("waiting for Deployments: the watch has ended")
		}
		if d, ok := change.Object.(*appsv1.Deployment); ok && d.Status.AvailableReplicas > 0 {
			available[d.Name] = true
		}
	}
	took := time.Since(began)
	b.no(e.Client.Delete(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	return took
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workers is as many as the operator has.
const workers = 8

// rawApply is a client without logic: it applies the same objects by server-side apply, in a namespace of its own, several at once.
func (w *world) rawApply(ctx context.Context, objs []*unstructured.Unstructured) (time.Duration, error) {
	w.b.serial++
	ns := fmt.Sprintf("raw-%d", w.b.serial)
	if err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		return 0, err
	}
	var copies []*unstructured.Unstructured
	for _, o := range objs {
		copies = append(copies, bare(o, ns))
	}
	began := time.Now()
	err := each(copies, func(o *unstructured.Unstructured) error {
		return w.client.Patch(ctx, o, client.Apply, client.FieldOwner("raw"), client.ForceOwnership) //nolint:staticcheck // as the operator does
	})
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	return took, w.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
}

func each[T any](list []T, do func(T) error) error {
	var g errgroup.Group
	g.SetLimit(workers)
	for _, o := range list {
		g.Go(func() error { return do(o) })
	}
	return g.Wait()
}

// flat is how long 50 Deployments with a Service each take from their creation until all are Available.
func (w *world) flat(ctx context.Context) (time.Duration, error) {
	const n = 50
	w.b.serial++
	ns := fmt.Sprintf("flat-%d", w.b.serial)
	if err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watch, err := w.client.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))
	if err != nil {
		return 0, err
	}
	defer watch.Stop()
	var objs []client.Object
	for i := range n {
		objs = append(objs, flatObjects(ns, fmt.Sprintf("d%d", i))...)
	}
	began := time.Now()
	if err := each(objs, func(o client.Object) error { return w.client.Create(ctx, o) }); err != nil {
		return 0, err
	}
	available := map[string]bool{}
	for len(available) < n {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case e := <-watch.ResultChan():
			if d, ok := e.Object.(*appsv1.Deployment); ok && d.Status.AvailableReplicas > 0 {
				available[d.Name] = true
			}
		}
	}
	took := time.Since(began)
	return took, w.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
}

func flatObjects(ns, name string) []client.Object {
	l := map[string]string{"app": name}
	m := metav1.ObjectMeta{Namespace: ns, Name: name, Labels: l}
	return []client.Object{
		&appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: l},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: l}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}},
		}},
		&corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Selector: l, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}}},
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Stop ends all services of a cloud that may write to its databases, and keeps the operator from starting them. Agents on nodes, which reach
// databases only through services, go on, and so do virtual machines. A cloud that is stopped already stays so.
func Stop(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(what, why string)) error {
	u, err := get(ctx, c, key)
	if err != nil {
		return err
	}
	if u.GetAnnotations()[v1alpha1.AnnotationPaused] != "true" {
		if err := merge(ctx, c, u, annotation(v1alpha1.AnnotationPaused, "true")); err != nil {
			return fmt.Errorf("pausing cloud %s: %w", key, err)
		}
	}
	err = kube.WaitFor(ctx, c, empty(key), func(o client.Object) (bool, string) {
		live, is := o.(*unstructured.Unstructured)
		return is && live != nil && isPaused(live), "the operator has not paused yet"
	}, func(why string) { report("operator", why) })
	if err != nil {
		return fmt.Errorf("pausing cloud %s: %w", key, err)
	}
	list, err := operation.Services(ctx, c, key)
	if err != nil {
		return err
	}
	for i := range list {
		d := &list[i]
		n := operation.Replicas(d)
		if n == 0 {
			continue
		}
		patch := annotation(operation.AnnotationStopped, strconv.Itoa(int(n)))
		patch["spec"] = map[string]any{"replicas": 0}
		if err := merge(ctx, c, d, patch); err != nil {
			return fmt.Errorf("stopping Deployment %s: %w", d.Name, err)
		}
	}
	for i := range list {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: list[i].Namespace, Name: list[i].Name}}
		err := kube.WaitFor(ctx, c, d, func(o client.Object) (bool, string) {
			live, _ := kube.As[appsv1.Deployment](o)
			if live == nil {
				return true, ""
			}
			return live.Status.ObservedGeneration >= live.Generation && live.Status.Replicas == 0, fmt.Sprintf("%d pods are left", live.Status.Replicas)
		}, func(why string) { report(d.Name, why) })
		if err != nil {
			return fmt.Errorf("stopping Deployment %s: %w", d.Name, err)
		}
	}
	return nil
}

// Start lets the operator start the services of a cloud again that Stop ended.
func Start(ctx context.Context, c client.WithWatch, key client.ObjectKey) error {
	return operation.Start(ctx, c, key, kube.FieldManager)
}

func annotation(name string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}}
}

// isPaused reports whether the operator has seen that the cloud is paused.
func isPaused(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, _ := c.(map[string]any); m["type"] == v1alpha1.ConditionProgressing && m["reason"] == status.ReasonPaused {
			return true
		}
	}
	return false
}

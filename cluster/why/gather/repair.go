// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster/why"
)

// Repair does a repair. What has been done already is no error.
func Repair(ctx context.Context, c client.Client, r why.Repair) error {
	var err error
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	switch r.Action {
	case why.DeletePod:
		err = c.Delete(ctx, pod)
	case why.ForgetPod:
		err = c.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case why.Uncordon:
		err = c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`)))
	case why.StartOperator:
		err = c.Patch(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}},
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`)))
	default:
		return fmt.Errorf("repairing: there is no action %q", r.Action)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("repairing (%s %s): %w", r.Action, r.Name, err)
	}
	return nil
}

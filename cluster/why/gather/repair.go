// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/kube"
)

// Repair makes a repair if it is still needed, as the user took time to answer. left explains why nothing was done, "" if it was.
func Repair(ctx context.Context, c client.Client, r why.Repair) (left string, err error) {
	switch r.Action {
	case why.DeletePod, why.ForgetPod:
		left, err = endPod(ctx, c, r)
	case why.Uncordon:
		left, err = uncordon(ctx, c, r)
	case why.StartOperator:
		left, err = startOperator(ctx, c, r)
	default:
		return "", fmt.Errorf("repairing: there is no action %q", r.Action)
	}
	switch {
	case apierrors.IsNotFound(err):
		return r.Name + " is gone", nil
	case apierrors.IsConflict(err):
		return r.Name + " has changed in the meantime", nil
	case err != nil:
		return "", fmt.Errorf("repairing (%s %s): %w", r.Action, r.Name, err)
	}
	return left, nil
}

// endPod deletes the pod only if it is unchanged: a StatefulSet's pod has a successor of the same name.
func endPod(ctx context.Context, c client.Client, r why.Repair) (left string, err error) {
	var pod corev1.Pod
	if err := c.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &pod); err != nil {
		return "", err
	}
	if pod.UID != r.UID {
		return "another pod has the name " + r.Name + " now", nil
	}
	opts := []client.DeleteOption{client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}}
	if r.Action == why.ForgetPod {
		if left, err := alive(ctx, c, &pod); left != "" || err != nil {
			return left, err
		}
		opts = append(opts, client.GracePeriodSeconds(0))
	}
	return "", c.Delete(ctx, &pod, opts...)
}

// alive explains why a pod must not be forgotten: it is not terminating, or the kubelet of its node reports and will end it.
func alive(ctx context.Context, c client.Client, pod *corev1.Pod) (string, error) {
	if pod.DeletionTimestamp == nil {
		return "pod " + pod.Name + " is not being deleted", nil
	}
	var n corev1.Node
	err := c.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &n)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err == nil && kube.ReadyCondition(&n).Status != corev1.ConditionUnknown {
		return "node " + n.Name + " reports, and must end pod " + pod.Name + " itself", nil
	}
	return "", err
}

func uncordon(ctx context.Context, c client.Client, r why.Repair) (left string, err error) {
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: r.Name}, &n); err != nil {
		return "", err
	}
	switch {
	case n.UID != r.UID:
		return "another node has the name " + r.Name + " now", nil
	case !n.Spec.Unschedulable:
		return "node " + r.Name + " already accepts pods", nil
	}
	return "", c.Patch(ctx, &n, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`)))
}

func startOperator(ctx context.Context, c client.Client, r why.Repair) (left string, err error) {
	var d appsv1.Deployment
	if err := c.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &d); err != nil {
		return "", err
	}
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 0 {
		return "the operator has already been started", nil
	}
	return "", c.Patch(ctx, &d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`)))
}

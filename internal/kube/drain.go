// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/lists"
)

// PodsOn lists the pods of a node.
func PodsOn(ctx context.Context, c client.Reader, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// Evictable reports whether a pod must be evicted to drain its node: a pod that has ended need not be, and DaemonSet and static pods would come back.
func Evictable(p *corev1.Pod) bool {
	if PodEnded(p) || p.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return false
	}
	owner := metav1.GetControllerOf(p)
	return owner == nil || owner.Kind != "DaemonSet"
}

// Cordon marks a node as unschedulable.
func Cordon(ctx context.Context, c client.Client, node, owner string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := Merge(ctx, c, n, client.FieldOwner(owner), map[string]any{"spec": map[string]any{"unschedulable": true}}); err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, err)
	}
	return nil
}

// EvictPod requests the eviction of a pod. The error is TooManyRequests while a disruption budget prevents it.
func EvictPod(ctx context.Context, c client.Client, p *corev1.Pod) error {
	return c.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
}

// Evict requests the eviction of a node's pods, as far as disruption budgets allow, until none is left, and returns those that remain. A budget
// cannot be watched, so it polls with pauses that grow from first to longest. read may be another client, without a cache.
func Evict(ctx context.Context, read client.Reader, c client.Client, node string, first, longest time.Duration, waiting func(what, why string)) (left []string, err error) {
	pause := wait.Backoff{Duration: first, Factor: 1.5, Steps: 100, Cap: longest}.DelayFunc()
	err = pause.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		pods, err := PodsOn(ctx, read, node)
		if err != nil {
			return false, err
		}
		left = nil
		for i := range pods {
			p := &pods[i]
			if !Evictable(p) {
				continue
			}
			left = append(left, p.Namespace+"/"+p.Name)
			if p.DeletionTimestamp != nil {
				continue
			}
			err := EvictPod(ctx, c, p)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
				return false, fmt.Errorf("evicting pod %s/%s: %w", p.Namespace, p.Name, err)
			}
		}
		waiting("the pods of node "+node, strings.Join(lists.Some(left, 5), ", "))
		return len(left) == 0, nil
	})
	return left, err
}

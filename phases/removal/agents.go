// SPDX-License-Identifier: Apache-2.0

package removal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// agentsStep restarts the health agents that do not know every remaining control-plane node. After the replacement of all nodes that they know, they
// would take an outage of etcd for one of their own network.
func agentsStep() Step {
	return Step{
		Name: "health-agents", Short: "Restart the health agents that do not know all control-plane nodes", Timeout: time.Minute,
		Run: func(ctx context.Context, j *Job, r workflow.Reporter) error {
			pods, err := j.ignorant(ctx)
			for i := range pods {
				p := &pods[i]
				if derr := j.K.Delete(ctx, p, client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(derr) != nil {
					err = errors.Join(err, fmt.Errorf("deleting pod %s/%s: %w", p.Namespace, p.Name, derr))
				}
			}
			if err == nil {
				r.Changed("restarted %d health agents", len(pods))
			}
			return err
		},
	}.Todo(func(ctx context.Context, j *Job) ([]string, error) {
		pods, err := j.ignorant(ctx)
		return lists.Map(pods, func(p corev1.Pod) string { return "restart pod " + p.Namespace + "/" + p.Name }), err
	})
}

// ignorant returns the health agents that started before the newest remaining control-plane node joined, if a control-plane node is removed.
func (j *Job) ignorant(ctx context.Context) ([]corev1.Pod, error) {
	if j.Is.member == nil && !slices.Contains(j.Is.Roles, "control-plane") {
		return nil, nil
	}
	nodes, err := kubernetes.ControlPlanes(ctx, j.K)
	if err != nil {
		return nil, err
	}
	var newest metav1.Time
	for _, n := range nodes {
		if n.Name != j.Is.Node && newest.Before(&n.CreationTimestamp) {
			newest = n.CreationTimestamp
		}
	}
	var pods corev1.PodList
	if err := j.K.List(ctx, &pods, client.MatchingLabels{v1alpha1.LabelApp: kubernetes.HealthAgent}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", kubernetes.HealthAgent, err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Spec.NodeName == j.Is.Node || p.DeletionTimestamp != nil || p.Status.StartTime == nil || newest.Before(p.Status.StartTime)
	}), nil
}

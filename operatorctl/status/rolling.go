// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Absent counts the pods of a DaemonSet that hold up its rollout without being part of it: those that it has deleted on nodes that were
// not Ready before. They end when their node comes back, and until then Kubernetes counts each as unavailable, so that maxUnavailable 1
// would end the rollout there. A pod on a node that was lost after its pod had been deleted or replaced does not count: the new version may
// be why it was lost, and the next node must not follow.
func Absent(o client.Object, seen Seen) int32 {
	lost := map[string]time.Time{}
	for _, n := range seen.Nodes {
		if !n.Ready {
			lost[n.Name] = n.Since
		}
	}
	nodes := map[string]bool{}
	for i := range seen.Pods {
		p := &seen.Pods[i]
		since, isLost := lost[p.Spec.NodeName]
		if isLost && owned(*p, o) && p.DeletionTimestamp != nil && !deleted(p).Before(since) {
			nodes[p.Spec.NodeName] = true
		}
	}
	return int32(len(nodes)) //nolint:gosec // a cluster has thousands of nodes at most
}

// deleted is when the deletion of a pod was asked for: its timestamp is when it should have ended.
func deleted(p *corev1.Pod) time.Time {
	grace := int64(0)
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}
	return p.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/operatorctl/status"
)

// Only a pod deleted on a node that was already lost lets the rollout continue with another node.
func TestPodsThatBlockARollout(t *testing.T) {
	const grace = int64(300)
	on := func(name string) corev1.Pod {
		p := pod(corev1.ContainerStatus{})
		p.Spec.NodeName = name
		return p
	}
	// deleted marks a pod as deleted at t0 plus after.
	deleted := func(p corev1.Pod, after time.Duration) corev1.Pod {
		at := metav1.NewTime(t0.Add(after).Add(time.Duration(grace) * time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, new(grace)
		return p
	}
	lostAt := func(name string, after time.Duration) status.Node {
		n := lost(node(name, "host"))
		n.Since = t0.Add(after)
		return n
	}
	other := deleted(on("n1"), time.Minute)
	other.Labels = map[string]string{"app": "nova"}
	for _, c := range []struct {
		name  string
		nodes []status.Node
		pods  []corev1.Pod
		want  int32
	}{
		{"all nodes are Ready", []status.Node{node("n1", "host")}, []corev1.Pod{deleted(on("n1"), 0)}, 0},
		{"lost, then deleted", []status.Node{lostAt("n1", 0)}, []corev1.Pod{deleted(on("n1"), time.Minute)}, 1},
		{"lost and deleted in the same second", []status.Node{lostAt("n1", 0)}, []corev1.Pod{deleted(on("n1"), 0)}, 1},
		{"deleted, then lost: the new version may be why", []status.Node{lostAt("n1", time.Minute)}, []corev1.Pod{deleted(on("n1"), 0)}, 0},
		{"lost with the new version", []status.Node{lostAt("n1", 0)}, []corev1.Pod{on("n1")}, 0},
		{"of another component", []status.Node{lostAt("n1", 0)}, []corev1.Pod{other}, 0},
		{"two nodes", []status.Node{lostAt("n1", 0), lostAt("n2", 0), node("n3", "host")},
			[]corev1.Pod{deleted(on("n1"), time.Minute), deleted(on("n2"), time.Minute), deleted(on("n3"), time.Minute)}, 2},
		{"nodes are not known", nil, []corev1.Pod{deleted(on("n1"), time.Minute)}, 0},
	} {
		if got := status.Absent(daemon(onHosts, 3, 0, 2), status.Seen{Nodes: c.nodes, Pods: c.pods, Now: t1}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

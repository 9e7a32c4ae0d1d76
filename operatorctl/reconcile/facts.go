// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/status"
)

// lastWords are the last messages of the pods of a StatefulSet that keep ending, by name.
func lastWords(s State, c *target) map[string]string {
	if c.Workload.Kind != component.StatefulSet || s.Releases.past != nil {
		return nil
	}
	words := map[string]string{}
	for _, pod := range s.Live.pods {
		if pod.Labels[v1alpha1.LabelComponent] == c.Name {
			if w := status.LastWords(pod); w != "" {
				words[pod.Name] = w
			}
		}
	}
	return words
}

// leftState is what tasks have left for the pods of a component, nil if nothing.
func leftState(s State, d *Desired, c *target) map[string]string {
	if cm := s.Live.configMap(d.Cluster.State(c.Name)); cm != nil {
		return cm.Data
	}
	return nil
}

// absent counts the pods of a component that keep its rollout from going on, although they are no part of it.
func absent(s State, d *Desired, c *target) int32 {
	if c.Workload.Kind != component.DaemonSet || s.Releases.past != nil {
		return 0
	}
	o := s.Live.objects[d.key("DaemonSet", c.Name, "")]
	if o == nil {
		return 0
	}
	return status.Absent(o, s.seen())
}

// replicaDown is true if a component is to have read-only replicas and none of them answers, so that no client is to be sent there.
func replicaDown(s State, d *Desired, c *target) bool {
	if !c.Workload.ReadReplicas || c.ReadReplicas == 0 || s.Releases.past != nil {
		return false
	}
	return !replicasAnswer(s, d, c.Name)
}

func replicasAnswer(s State, d *Desired, name string) bool {
	w := status.WorkloadOf(s.Live.objects[d.key("Deployment", name, render.ReplicaSuffix)], s.seen())
	return w != nil && w.Answering > 0
}

// key of a workload of kind Deployment, DaemonSet or StatefulSet.
func (d *Desired) key(kind, name, suffix string) engine.Key {
	return engine.Key{GVK: appsv1.SchemeGroupVersion.WithKind(kind), Namespace: d.Cluster.Namespace, Name: d.Cluster.Object(name) + suffix}
}

// configMap of a component, an empty one if there is none.
func (d *Desired) configMap(s State, name string) *corev1.ConfigMap {
	if cm := s.Live.configMap(d.Cluster.Object(name)); cm != nil {
		return cm
	}
	return &corev1.ConfigMap{}
}

// composedSecret holds the file that the pods of a component mount; an empty one if there is none.
func (d *Desired) composedSecret(s State, c *target) *corev1.Secret {
	if secret := s.Live.secret(d.Cluster.Object(c.Name) + render.ConfigSuffix); secret != nil {
		return secret
	}
	return &corev1.Secret{}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
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

// setState writes it. Tasks may end after the reconcile.
func (a actor) setState(s State, cluster component.Cluster) func(ctx context.Context, component string, data map[string]string) error {
	empty := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: s.Cloud.Namespace, Labels: labels(s)},
	}
	own(s.Cloud, empty)
	return func(ctx context.Context, component string, data map[string]string) error {
		cm := empty.DeepCopy()
		cm.Name, cm.Data = cluster.State(component), data
		if data == nil {
			return a.applier.Delete(ctx, cm)
		}
		_, err := a.applier.Apply(ctx, []client.Object{cm})
		return err
	}
}

// notify makes events of what tasks report, also after the reconcile.
func (a actor) notify(cr *v1alpha1.OnecloudCluster) func(effects.Notice) {
	about := &v1alpha1.OnecloudCluster{TypeMeta: cr.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: cr.Name, Namespace: cr.Namespace, UID: cr.UID, ResourceVersion: cr.ResourceVersion,
	}}
	return func(n effects.Notice) {
		e := normal(subject(n.Component), n.Reason, "%s", n.Text)
		if n.Warning {
			e.kind = corev1.EventTypeWarning
		}
		a.event(about, e)
	}
}

// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// An etcd that was switched off, given another size and switched on again does not start beside the data of the earlier one.
func TestEtcdOfAnotherSize(t *testing.T) {
	cr := newCloud()
	cr.Spec.Etcd.Size = 3
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: "data-default-etcd-0", Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cr.Name, v1alpha1.LabelComponent: "etcd",
	}}}
	b := newBench(t, interceptor.Funcs{}, cr, claim)
	for range 2 { // what is remembered between passes does not hide it
		b.reconcile()
		s := b.component("etcd")
		if s.State != v1alpha1.Degraded || !strings.Contains(s.Message, "an etcd of 1 members, and spec.etcd.size is 3") || !strings.Contains(s.Message, "delete pvc -l ") {
			t.Fatalf("etcd is %s: %s", s.State, s.Message)
		}
	}
	set := &appsv1.StatefulSet{}
	key := client.ObjectKey{Namespace: cr.Namespace, Name: "default-etcd"}
	if err := b.api.Get(t.Context(), key, set); client.IgnoreNotFound(err) != nil || err == nil {
		t.Fatalf("the StatefulSet was made: %v", err)
	}
	if err := b.api.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	b.get(set, "default-etcd")
	anti := set.Spec.Template.Spec.Affinity.PodAntiAffinity
	if anti == nil || len(anti.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("members may share a node without need: %+v", anti)
	}
}

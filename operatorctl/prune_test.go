// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
)

// The read-only twin carries a component label of its own; it must not go when its component cannot be rendered for once.
func TestTwinOfAComponentThatCannotBeRenderedIsKept(t *testing.T) {
	cr := newCloud()
	cr.Spec.Glance.SlaveReplicas = 1
	twin := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "onecloud", Name: "default-glance-slave", Labels: render.Labels("default", "glance-slave"),
		Annotations: map[string]string{engine.HashAnnotation: "x"},
	}}
	b := newBench(t, interceptor.Funcs{}, cr, twin)
	b.reconcile()
	b.get(&appsv1.Deployment{}, twin.Name)
	edited := &corev1.ConfigMap{}
	b.get(edited, "default-glance")
	if err := b.api.Patch(t.Context(), edited, client.RawPatch(types.MergePatchType, []byte(`{"data":{"mine":"{no yaml"}}`)), client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if s := b.component("glance"); s.State != v1alpha1.Degraded {
		t.Fatalf("an option that is no YAML leaves glance %s: %s", s.State, s.Message)
	}
	b.get(&appsv1.Deployment{}, twin.Name)
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
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
	"yunion.io/x/ocadm/test/require"
)

// The read-only replica has its own component label; it must stay when its component cannot be rendered.
func TestEqualReleaseOfAnUnrenderableComponentIsKept(t *testing.T) {
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
	require.NoError(t, b.api.Patch(t.Context(), edited, client.RawPatch(types.MergePatchType, []byte(`{"data":{"mine":"{no yaml"}}`)), client.FieldOwner("kubectl-edit")))
	b.reconcile()
	if s := b.component("glance"); s.State != v1alpha1.Degraded {
		t.Fatalf("an option that is no YAML leaves glance %s: %s", s.State, s.Message)
	}
	b.get(&appsv1.Deployment{}, twin.Name)
}

// onecloud-service-operator labels its objects with another name. Pausing it, or a rejected object of it, must not delete the others.
func TestComponentWithAnotherLabelIsKept(t *testing.T) {
	const name = "default-onecloud-service-operator"
	refuse := false
	funcs := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if refuse && o.GetName() == name {
			return errors.New("the API server is busy")
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	for what, hold := range map[string]func(*bench){
		"paused": func(b *bench) {
			b.edit(`{"metadata":{"annotations":{"onecloud.yunion.io/paused":"onecloud-service-operator"}}}`)
		},
		"refused": func(b *bench) {
			refuse = true
			b.edit(`{"spec":{"onecloudServiceOperator":{"service":{"nodePort":30886}}}}`)
		},
	} {
		t.Run(what, func(t *testing.T) {
			refuse = false
			cr := newCloud()
			cr.Spec.OnecloudServiceOperator.Disable = new(false)
			b := newBench(t, funcs, cr)
			b.reconcile()
			b.get(&corev1.Service{}, name)
			hold(b)
			b.reconcile()
			b.get(&corev1.Service{}, name)
			b.get(&corev1.ConfigMap{}, name)
		})
	}
}

// edit patches the cloud like a user.
func (b *bench) edit(patch string) {
	b.t.Helper()
	require.NoError(b.t, edit(b.t, &v1alpha1.OnecloudCluster{}, "default", patch)(b.api))
}

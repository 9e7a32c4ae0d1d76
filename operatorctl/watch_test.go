// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/render"
)

// An object whose label is edited away still concerns the cloud it belonged to.
func TestRelabelledObjectBringsAPass(t *testing.T) {
	b := newBench(t, interceptor.Funcs{})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	old := &appsv1.Deployment{}
	old.SetNamespace(cloudKey.Namespace)
	old.SetResourceVersion("1")
	old.SetLabels(render.Labels("default", "glance"))
	now := old.DeepCopy()
	now.SetResourceVersion("2")
	now.Labels[v1alpha1.LabelInstance] = "mine"
	b.r.toCloud().Update(t.Context(), event.UpdateEvent{ObjectOld: old, ObjectNew: now}, q)
	if q.Len() != 1 {
		t.Fatalf("%d passes are queued", q.Len())
	}
	if got, _ := q.Get(); got.NamespacedName != cloudKey {
		t.Errorf("queued %s", got)
	}
}

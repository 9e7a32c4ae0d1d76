// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/render"
)

// The service catalogue sends no client to read-only replicas that do not answer.
func TestEndpointOfUnreachableReplicas(t *testing.T) {
	planned := func(replicas, available int32) string {
		t.Helper()
		cr := newCloud()
		cr.Spec.RegionServer.SlaveReplicas = replicas
		objs := []client.Object{cr}
		if available >= 0 {
			labels := render.Labels("default", "region-slave")
			objs = append(objs, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-region-slave", Labels: labels},
				Spec:       appsv1.DeploymentSpec{Replicas: new(replicas), Selector: &metav1.LabelSelector{MatchLabels: labels}},
				Status:     appsv1.DeploymentStatus{Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: available},
			})
		}
		b := newBench(t, interceptor.Funcs{}, objs...)
		b.reconcile()
		plan := b.r.reads.clouds.of[cloudKey].memos.desired.value.Effects
		i := slices.IndexFunc(plan, func(e effects.Effect) bool { return e.Key == "endpoints/region" })
		return plan[i].Hash
	}
	none := planned(0, -1)
	if planned(2, -1) != none || planned(2, 0) != none {
		t.Error("replicas that do not answer have an endpoint")
	}
	if planned(2, 1) == none {
		t.Error("replicas that answer have no endpoint")
	}
}

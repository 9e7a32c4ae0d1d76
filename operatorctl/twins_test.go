// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/render"
)

// The catalogue sends nobody to read-only replicas that do not answer.
func TestEndpointOfReplicasThatAreDown(t *testing.T) {
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
		plan := b.r.clouds[cloudKey].known.Load().plan
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

// What fails for a whole cloud is tried again within half a minute, however long it has failed.
func TestRetriesComeSoon(t *testing.T) {
	limiter, item := retries(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "onecloud", Name: "default"}}
	var last time.Duration
	for range 100 {
		wait := limiter.When(item)
		if wait > 30*time.Second || wait < last {
			t.Fatalf("%s after %s", wait, last)
		}
		last = wait
	}
	if last != 30*time.Second {
		t.Errorf("at last every %s", last)
	}
}

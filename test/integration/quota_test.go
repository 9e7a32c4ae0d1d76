// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/integration/harness"
)

// TestPodQuota: a quota refuses a pod, not an object of ours. The component says so, the others go on, and it comes once the quota allows.
func TestPodQuota(t *testing.T) {
	k := newClouds(t)
	x := k.tenant("onecloud")
	x.cr = harness.Only(x.cr, "keystone", "region", "glance", "yunionconf")
	x.cr.Spec.Glance.Disable = new(true)
	k.startOperator()
	k.create(x)
	k.untilReady(x)

	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "tight"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1")}},
	}
	if err := k.client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	k.edit(x, `{"spec":{"glance":{"disable":false}}}`)
	k.until(x, func(cr *v1alpha1.OnecloudCluster) bool {
		for _, c := range cr.Status.Components {
			if c.Name == "glance" {
				return c.State == v1alpha1.Degraded && strings.Contains(c.Message, "exceeded quota: tight") && strings.HasPrefix(c.Message, "0 of 1 pods ready")
			}
		}
		return false
	})
	k.until(x, func(cr *v1alpha1.OnecloudCluster) bool {
		on := map[string]v1alpha1.State{}
		for _, c := range cr.Status.Components {
			on[c.Name] = c.State
		}
		return on["keystone"] == v1alpha1.Available && on["region"] == v1alpha1.Available && on["yunionconf"] == v1alpha1.Available
	})
	if err := k.client.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	k.untilReady(x)
}

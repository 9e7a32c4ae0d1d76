// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// TestPodQuota tests a quota that rejects pods. The components report it, the others continue, and the pods are created when the quota allows.
func TestPodQuota(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Pods})
	cr := e.Only("keystone", "region", "glance", "yunionconf")
	cr.Spec.Glance.Disable = new(true)
	e.Install(cr)

	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "tight"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1")}},
	}
	e.Create(quota)
	e.Edit(`{"spec":{"glance":{"disable":false},"etcd":{"disable":false}}}`)
	e.UntilComponent("glance", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Degraded && strings.Contains(c.Message, "exceeded quota: tight") && strings.HasPrefix(c.Message, "0 of 1 pods ready")
	})
	e.UntilComponent("etcd", func(c v1alpha1.ComponentStatus) bool { // only an event of its StatefulSet has the reason
		return strings.Contains(c.Message, "1 not created yet (kubectl -n "+cr.Namespace+" describe statefulset "+cr.Name+"-etcd)")
	})
	e.Edit(`{"spec":{"etcd":{"disable":true}}}`)
	for _, name := range []string{"keystone", "region", "yunionconf"} {
		e.UntilComponent(name, func(c v1alpha1.ComponentStatus) bool { return c.State == v1alpha1.Available })
	}
	require.NoError(t, e.Client.Delete(t.Context(), quota))
	e.UntilReady()
}

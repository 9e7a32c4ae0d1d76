// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// In a cluster without kube-proxy (--skip-phases addon/kube-proxy), CoreDNS is upgraded nevertheless.
func TestDNSWithoutProxy(t *testing.T) {
	h := machine(t)
	h.Config.Cluster.KubernetesVersion = version.Kubernetes
	all, err := kubernetes.Images(h.Config)
	require.NoError(t, err)
	newest := ""
	for _, i := range all {
		if r := images.Split(i); r.Repository == "registry.k8s.io/coredns/coredns" {
			newest = r.Tag
		}
	}
	for tag, want := range map[string]bool{"v1.9.0": false, newest: true} {
		server := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-node1", Labels: map[string]string{"component": "kube-apiserver"}},
			Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Image: "registry/kube-apiserver:" + version.Kubernetes}}}}
		dns := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: dnsName}}
		dns.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.k8s.io/coredns/coredns:" + tag}}
		u := &Upgrade{Host: h, K: fake.NewClientBuilder().WithObjects(server, dns).Build(), ControlPlane: true, Record: Record{To: version.Kubernetes}}
		if done, err := addonsStep().Check(t.Context(), u); done != want || err != nil {
			t.Errorf("CoreDNS %q: done %t, %v", tag, done, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestWithRole(t *testing.T) {
	node := func(name, role, address string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"onecloud.yunion.io/host": role}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
		if address != "" {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
		return n
	}
	c := fake.NewClientBuilder().WithObjects(node("a", "enable", "192.0.2.1"), node("b", "disable", "192.0.2.2"), node("c", "enable", ""), node("d", "enable", "192.0.2.4")).Build()
	got, err := WithRole(t.Context(), c, []string{"a", "b", "c", "unknown"}, RoleHost)
	if d := cmp.Diff([]string{"a (192.0.2.1)", "c"}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

func machine(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: map[string]string{"onecloud.yunion.io/host": "enable"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "Kubelet stopped posting node status."}}},
	}
}

// A lost node causes a condition and one event, its return another event.
func TestALostNodeIsReported(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud(), machine(corev1.ConditionTrue))
	is := func(want metav1.ConditionStatus) {
		t.Helper()
		c := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionNodesReady)
		if c == nil || c.Status != want {
			t.Errorf("want %s, got %+v", want, c)
		}
	}
	became := func(ready corev1.ConditionStatus) map[string]int {
		t.Helper()
		require.NoError(t, b.api.Status().Update(t.Context(), machine(ready)))
		b.reported()
		b.reconcile()
		b.reconcile()
		reported := b.reported()
		maps.DeleteFunc(reported, func(e string, _ int) bool { return !strings.Contains(e, "node n2") })
		return reported
	}
	b.reconcile()
	is(metav1.ConditionTrue)
	const lost = "Warning NodesNotReady node n2 (Kubelet stopped posting node status) is not Ready"
	if reported := became(corev1.ConditionUnknown); len(reported) != 1 || reported[lost] != 1 {
		t.Errorf("reported %v", reported)
	}
	is(metav1.ConditionFalse)
	b.r.forget(cloudKey) // another operator
	if reported := became(corev1.ConditionUnknown); len(reported) != 0 {
		t.Errorf("another operator reported again: %v", reported)
	}
	if reported := became(corev1.ConditionTrue); len(reported) != 1 || reported["Normal NodesReady node n2 is Ready again or no longer exists"] != 1 {
		t.Errorf("reported %v", reported)
	}
	is(metav1.ConditionTrue)
}

func at(n *corev1.Node, address string) *corev1.Node {
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}, {Type: corev1.NodeInternalIP, Address: address}}
	return n
}

// A cloud without an address in its spec uses that of a controller node, which becomes a default in the spec and stays there whatever happens to the
// node; a user's choice wins.
func TestMinimalCloudHasTheAddressOfANode(t *testing.T) {
	controller := func(name, address string, age time.Duration) *corev1.Node {
		n := at(machine(corev1.ConditionTrue), address)
		n.Name, n.Labels, n.CreationTimestamp = name, map[string]string{"onecloud.yunion.io/controller": "enable"}, metav1.NewTime(b0.Add(-age))
		return n
	}
	cr := newCloud()
	cr.Spec.Version = ""
	first := controller("n1", "10.0.0.11", time.Hour)
	b := newBench(t, interceptor.Funcs{}, cr)
	is := func(when, want string) {
		t.Helper()
		for range 3 {
			b.reconcile()
		}
		if got := b.cloud().Spec.LoadBalancerEndpoint; got != want {
			t.Errorf("%s: the spec says %q, want %q", when, got, want)
		}
		s := &corev1.Secret{}
		b.get(s, "default-certs")
		certs, err := pki.ParseCerts(s.Data["service.crt"])
		require.NoError(t, err)
		if want != "" && certs[0].VerifyHostname(want) != nil {
			t.Errorf("%s: the certificate is not valid for %s", when, want)
		}
	}
	is("without a node", "")
	if v := b.cloud().Spec.Version; v != "latest" {
		t.Errorf("the version is %q", v)
	}
	require.NoError(t, b.api.Create(t.Context(), first))
	is("with a node", "10.0.0.11")
	require.NoError(t, b.api.Create(t.Context(), controller("n0", "10.0.0.10", 2*time.Hour)))
	is("with an older node", "10.0.0.11")
	require.NoError(t, b.api.Delete(t.Context(), first))
	is("without the node", "10.0.0.11")
	b.r.forget(cloudKey) // another operator
	is("with another operator", "10.0.0.11")
	for _, c := range []struct{ patch, want string }{
		{`[{"op":"remove","path":"/spec/loadBalancerEndpoint"}]`, "10.0.0.10"},
		{`[{"op":"replace","path":"/spec/loadBalancerEndpoint","value":"cloud.example.com"}]`, "cloud.example.com"},
	} {
		require.NoError(t, b.api.Patch(t.Context(), b.cloud(), client.RawPatch(types.JSONPatchType, []byte(c.patch)), client.FieldOwner("kubectl-edit")))
		is(c.patch, c.want)
	}
}

// A new operator changes nothing in a running cloud: if its endpoints were registered without an address, it gets none.
func TestRunningCloudGetsNoAddress(t *testing.T) {
	node := at(machine(corev1.ConditionTrue), "10.0.0.11")
	node.Labels = map[string]string{"onecloud.yunion.io/controller": "enable"}
	cr := newCloud()
	cr.Status.Effects = map[string]string{"endpoints/keystone": "registered"}
	b := newBench(t, interceptor.Funcs{}, cr, node)
	b.reconcile()
	if got := b.cloud().Spec.LoadBalancerEndpoint; got != "" {
		t.Errorf("the spec says %q", got)
	}
}

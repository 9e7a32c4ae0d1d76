// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
)

func machine(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: map[string]string{"onecloud.yunion.io/host": "enable"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "Kubelet stopped posting node status."}}},
	}
}

// A lost node is a condition and one event, its return another.
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
		if err := b.api.Status().Update(t.Context(), machine(ready)); err != nil {
			t.Fatal(err)
		}
		b.told()
		b.reconcile()
		b.reconcile()
		told := b.told()
		maps.DeleteFunc(told, func(e string, _ int) bool { return !strings.Contains(e, "node n2") })
		return told
	}
	b.reconcile()
	is(metav1.ConditionTrue)
	const lost = "Warning NodesNotReady node n2 (Kubelet stopped posting node status) is not Ready"
	if told := became(corev1.ConditionUnknown); len(told) != 1 || told[lost] != 1 {
		t.Errorf("told %v", told)
	}
	is(metav1.ConditionFalse)
	b.r.drop(cloudKey) // another operator
	if told := became(corev1.ConditionUnknown); len(told) != 0 {
		t.Errorf("another operator told again: %v", told)
	}
	if told := became(corev1.ConditionTrue); len(told) != 1 || told["Normal NodesReady node n2 is Ready again, or gone"] != 1 {
		t.Errorf("told %v", told)
	}
	is(metav1.ConditionTrue)
}

// Only what matters of a node is kept, and brings a pass.
func TestNodesAreSmallAndQuiet(t *testing.T) {
	big := machine(corev1.ConditionTrue)
	big.Annotations, big.Status.Images = map[string]string{"a": "b"}, []corev1.ContainerImage{{Names: []string{"x"}}}
	big.Status.Conditions = append(big.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure})
	big.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	kept, err := stripNode(big)
	if n, ok := kept.(*corev1.Node); err != nil || !ok || n.Name != "n2" || len(n.Labels) != 1 || len(n.Status.Conditions) != 1 ||
		!n.Status.Conditions[0].LastHeartbeatTime.IsZero() || n.Annotations != nil || n.Status.Images != nil {
		t.Errorf("kept %+v, %v", kept, err)
	}
	labelled := machine(corev1.ConditionTrue)
	labelled.Labels["onecloud.yunion.io/baremetal"] = "enable"
	for _, c := range []struct {
		name string
		now  *corev1.Node
		want bool
	}{{"heartbeat", machine(corev1.ConditionTrue), false}, {"lost", machine(corev1.ConditionUnknown), true}, {"a label", labelled, true}} {
		if got := nodeTellsMore(event.UpdateEvent{ObjectOld: machine(corev1.ConditionTrue), ObjectNew: c.now}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

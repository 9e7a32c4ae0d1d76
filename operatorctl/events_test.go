// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"log/slog"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

var cloudKey = types.NamespacedName{Namespace: "onecloud", Name: "default"}

// An update that removes the label of an object still affects its former cloud.
func TestRelabelledObjectTriggersReconcile(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	r, err := reconcile.New(c, c, events.NewFakeRecorder(1), reconcile.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	old := &appsv1.Deployment{}
	old.SetNamespace(cloudKey.Namespace)
	old.SetResourceVersion("1")
	old.SetLabels(render.Labels("default", "glance"))
	now := old.DeepCopy()
	now.SetResourceVersion("2")
	now.Labels[v1alpha1.LabelInstance] = "mine"
	toCloud(r).Update(t.Context(), event.UpdateEvent{ObjectOld: old, ObjectNew: now}, q)
	if q.Len() != 1 {
		t.Fatalf("%d requests are queued", q.Len())
	}
	if got, _ := q.Get(); got.NamespacedName != cloudKey {
		t.Errorf("queued %s", got)
	}
}

func machine(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: map[string]string{"onecloud.yunion.io/host": "enable"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "Kubelet stopped posting node status."}}},
	}
}

func at(n *corev1.Node, address string) *corev1.Node {
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}, {Type: corev1.NodeInternalIP, Address: address}}
	return n
}

// Only the relevant parts of a node are kept, and only they trigger a reconcile.
func TestNodesAreSmallAndQuiet(t *testing.T) {
	big := machine(corev1.ConditionTrue)
	big.Annotations, big.Status.Images = map[string]string{"a": "b"}, []corev1.ContainerImage{{Names: []string{"x"}}}
	big.Status.Conditions = append(big.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure})
	big.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	kept, err := stripped(stripNode)(big)
	if n, ok := kept.(*corev1.Node); err != nil || !ok || n.Name != "n2" || len(n.Labels) != 1 || len(n.Status.Conditions) != 1 ||
		!n.Status.Conditions[0].LastHeartbeatTime.IsZero() || n.Annotations != nil || n.Status.Images != nil {
		t.Errorf("kept %+v, %v", kept, err)
	}
	labelled := machine(corev1.ConditionTrue)
	labelled.Labels["onecloud.yunion.io/baremetal"] = "enable"
	addressed := at(machine(corev1.ConditionTrue), "10.0.0.2")
	for _, c := range []struct {
		name string
		now  *corev1.Node
		want bool
	}{{"heartbeat", machine(corev1.ConditionTrue), false}, {"lost", machine(corev1.ConditionUnknown), true}, {"a label", labelled, true}, {"an address", addressed, true}} {
		if got := nodeChanged(machine(corev1.ConditionTrue), c.now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// An error of a whole cloud is retried within half a minute, however long it lasts.
func TestRetriesComeSoon(t *testing.T) {
	limiter, item := options().RateLimiter, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "onecloud", Name: "default"}}
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

// A pod's heartbeat triggers no reconcile. Another cause of the same trouble does, and its deletion, also on a node that does not end it: nothing else about
// the pod changes then.
func TestPodTriggersReconcile(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "default-host-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	waits := func(message string) {
		state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: message}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "host", State: state}}
	}
	waits(`secret "a" not found`)
	old, beat, deleted := pod.DeepCopy(), pod.DeepCopy(), pod.DeepCopy()
	beat.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	deleted.DeletionTimestamp = new(metav1.Now())
	waits(`secret "b" not found`)
	for now, want := range map[*corev1.Pod]bool{beat: false, deleted: true, pod: true} {
		if got := podChanged(old, now); got != want {
			t.Errorf("%t, want %t", got, want)
		}
	}
}

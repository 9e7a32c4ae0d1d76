// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// fleet is a DaemonSet on three nodes under Kubernetes' own controller.
type fleet struct {
	t *testing.T
	c client.WithWatch
}

func (f *fleet) seen(ctx context.Context) (*appsv1.DaemonSet, status.Seen) {
	f.t.Helper()
	ds := &appsv1.DaemonSet{}
	var nodes corev1.NodeList
	var pods corev1.PodList
	for _, err := range []error{
		f.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "agent"}, ds), f.c.List(ctx, &nodes), f.c.List(ctx, &pods, client.InNamespace(namespace)),
	} {
		require.NoError(f.t, err)
	}
	s := status.Seen{Pods: pods.Items, Now: time.Now()}
	for i := range nodes.Items {
		s.Nodes = append(s.Nodes, status.NodeOf(&nodes.Items[i]))
	}
	return ds, s
}

// ready sets whether a node is Ready.
func (f *fleet) ready(name string, is corev1.ConditionStatus) {
	f.t.Helper()
	setReady(f.t, f.c, name, is)
}

// setReady sets whether a node and its pods are Ready. Like the node controller, it taints a lost node.
func setReady(t *testing.T, c client.Client, name string, is corev1.ConditionStatus) {
	t.Helper()
	report := func(o client.Object, kind string) {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"lastTransitionTime":%q}]}}`, kind, is, time.Now().UTC().Format(time.RFC3339))
		if err := c.Status().Patch(t.Context(), o, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	node, taints := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, `null`
	report(node, "Ready")
	if is != corev1.ConditionTrue {
		taints = `[{"key":"node.kubernetes.io/unreachable","effect":"NoSchedule"},{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]`
	}
	require.NoError(t, c.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`))))
	var pods corev1.PodList
	require.NoError(t, c.List(t.Context(), &pods, client.InNamespace(namespace)))
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == name { // the kubelet of a node that is back reports them ready
			report(&pods.Items[i], "Ready")
		}
	}
}

// follow acts as the operator during a rollout, at each change of a pod, until done returns true. It fails if two Ready nodes have no available pod at the same time.
func (f *fleet) follow(what string, done func(*appsv1.DaemonSet, status.Seen) bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), env.Patience)
	defer cancel()
	changes, err := f.c.Watch(ctx, &appsv1.DaemonSetList{}, client.InNamespace(namespace))
	require.NoError(f.t, err)
	defer changes.Stop()
	pods, err := f.c.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	require.NoError(f.t, err)
	defer pods.Stop()
	for {
		ds, s := f.seen(ctx)
		if done(ds, s) {
			return
		}
		if down := f.down(s); len(down) > 1 {
			f.t.Fatalf("%s: no agent on %q at once", what, down)
		}
		if want := 1 + int(status.Absent(ds, s)); ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() != want {
			ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt(want))
			if err := f.c.Update(ctx, ds); err != nil {
				f.t.Logf("%s: %v", what, err) // it has changed meanwhile; the watch triggers another try
			}
		}
		select {
		case <-ctx.Done():
			f.t.Fatalf("%s: %+v", what, ds.Status)
		case <-changes.ResultChan():
		case <-pods.ResultChan():
		}
	}
}

// down returns the Ready nodes without a ready pod.
func (f *fleet) down(s status.Seen) (names []string) {
	for _, n := range s.Nodes {
		if n.Ready && !slices.ContainsFunc(s.Pods, func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name && p.DeletionTimestamp == nil && isUp(p) }) {
			names = append(names, n.Name)
		}
	}
	return names
}

func isUp(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// TestOneNodeAtATime checks that under Kubernetes' own controller a rollout skips a node that was lost before, updates the others one at a time, and
// includes the lost node once it is back.
func TestOneNodeAtATime(t *testing.T) {
	cluster := harness.Require(t, harness.Options{})
	require.NoError(t, cluster.StartControllerManager(t.Context()))
	hosts := map[string]string{"onecloud.yunion.io/host": "enable"}
	kubelet, err := cluster.StartKubelet(t.Context(), []string{"Pod"}, harness.Node{Name: "n1", Labels: hosts}, harness.Node{Name: "n2", Labels: hosts}, harness.Node{Name: "n3", Labels: hosts})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := kubelet.Stop(); err != nil {
			t.Errorf("the instant kubelet: %v", err)
		}
	})
	f := &fleet{t: t}
	if f.c, err = kube.New(cluster.Config(harness.Admin)); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "agent"}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		MinReadySeconds: 1, Selector: &metav1.LabelSelector{MatchLabels: labels},
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1))}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{NodeSelector: hosts, Containers: []corev1.Container{{Name: "agent", Image: "agent:v1"}}}},
	}}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}, ds} {
		require.NoError(t, client.IgnoreAlreadyExists(f.c.Create(t.Context(), o)))
	}
	begun := func(d *appsv1.DaemonSet, _ status.Seen) bool { return d.Status.NumberAvailable == 3 }
	waitFor := func(what string, done func(*appsv1.DaemonSet, status.Seen) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
		defer cancel()
		if err := kube.WaitFor(ctx, f.c, &appsv1.DaemonSet{ObjectMeta: ds.ObjectMeta}, func(client.Object) (bool, string) {
			d, s := f.seen(ctx)
			return done(d, s), fmt.Sprintf("%+v", d.Status)
		}, func(string) {}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	waitFor("the first version", begun)

	f.ready("n3", corev1.ConditionUnknown)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"agent","image":"agent:v2"}]}}}}`
	require.NoError(t, f.c.Patch(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"}},
		client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	on := func(s status.Seen, node, image string) bool {
		return slices.ContainsFunc(s.Pods, func(p corev1.Pod) bool {
			return p.Spec.NodeName == node && p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == image && isUp(p)
		})
	}
	f.follow("n3 is lost", func(_ *appsv1.DaemonSet, s status.Seen) bool {
		return on(s, "n1", "agent:v2") && on(s, "n2", "agent:v2")
	})
	if _, s := f.seen(t.Context()); on(s, "n3", "agent:v2") || status.Absent(ds, s) != 1 {
		t.Errorf("%d pods are said to be absent", status.Absent(ds, s))
	}
	f.ready("n3", corev1.ConditionTrue)
	f.follow("n3 is back", func(d *appsv1.DaemonSet, s status.Seen) bool {
		return on(s, "n3", "agent:v2") && d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() == 1
	})
}

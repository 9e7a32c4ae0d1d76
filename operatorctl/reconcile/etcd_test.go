// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/require"
)

// An etcd that was disabled, resized and enabled again does not start with the earlier data.
func TestEtcdOfAnotherSize(t *testing.T) {
	cr := newCloud()
	cr.Spec.Etcd.Size = 3
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: "data-default-etcd-0", Labels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cr.Name, v1alpha1.LabelComponent: "etcd",
	}}}
	b := newBench(t, interceptor.Funcs{}, cr, claim)
	for range 2 { // cached results do not hide it
		b.reconcile()
		s := b.component("etcd")
		if s.State != v1alpha1.Degraded || !strings.Contains(s.Message, "volumes of etcd with 1 member exist, but spec.etcd.size is 3") || !strings.Contains(s.Message, "delete pvc -l ") {
			t.Fatalf("etcd is %s: %s", s.State, s.Message)
		}
	}
	set := &appsv1.StatefulSet{}
	key := client.ObjectKey{Namespace: cr.Namespace, Name: "default-etcd"}
	if err := b.api.Get(t.Context(), key, set); client.IgnoreNotFound(err) != nil || err == nil {
		t.Fatalf("the StatefulSet was made: %v", err)
	}
	require.NoError(t, b.api.Delete(t.Context(), claim))
	b.reconcile()
	b.get(set, "default-etcd")
	anti := set.Spec.Template.Spec.Affinity.PodAntiAffinity
	if anti == nil || len(anti.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("members may share a node without need: %+v", anti)
	}
}

// State that a task sets for the pods of a component stays until the task removes it, and is deleted with the cloud.
func TestStateForPods(t *testing.T) {
	cr := newCloud()
	cr.Spec.Etcd.Size = 3
	lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: "default-etcd-2", Labels: map[string]string{
		v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cr.Name, v1alpha1.LabelComponent: "etcd",
	}}}
	lost.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "etcd", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "has already been bootstrapped"}},
	}}
	b := newBench(t, interceptor.Funcs{}, cr, lost)
	b.reconcile()
	d := &Desired{Cluster: component.Cluster{Name: cr.Name}}
	s := State{Cloud: b.cloud(), Live: Live{namespace: cr.Namespace, instance: v1alpha1.InstancePrefix + cr.Name}}
	set := b.r.acts.setState(s, d.Cluster)
	require.NoError(t, set(t.Context(), "etcd", map[string]string{component.EtcdInitialState: "existing"}))
	b.reconcile()
	cm := &corev1.ConfigMap{}
	b.get(cm, "default-etcd-state")
	if len(cm.OwnerReferences) != 1 || cm.Data[component.EtcdInitialState] != "existing" {
		t.Errorf("%+v", cm)
	}
	var err error
	if s.Live, err = b.r.reads.list(t.Context(), s.Cloud); err != nil {
		t.Fatal(err)
	}
	etcd := &target{Resolved: component.Resolved{Component: component.Component{Name: "etcd", Workload: component.Workload{Kind: component.StatefulSet}}}}
	if leftState(s, d, etcd)[component.EtcdInitialState] != "existing" || lastWords(s, etcd)["default-etcd-2"] != "has already been bootstrapped" {
		t.Errorf("what the plan is made of: %v, %v", leftState(s, d, etcd), lastWords(s, etcd))
	}
	require.NoError(t, set(t.Context(), "etcd", nil))
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(cm), cm); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("taken back: %v", err)
	}
}

// An etcd that is recreated while a member was joining starts anew: without the earlier members, there is nothing to join.
func TestRecreatedEtcdStartsAnew(t *testing.T) {
	cr := newCloud()
	cr.Spec.Etcd.Size = 3
	b := newBench(t, interceptor.Funcs{}, cr)
	b.reconcile()
	s := State{Cloud: b.cloud(), Live: Live{namespace: cr.Namespace, instance: v1alpha1.InstancePrefix + cr.Name}}
	joining := map[string]string{component.EtcdInitialState: "existing"}
	require.NoError(t, b.r.acts.setState(s, component.Cluster{Name: cr.Name})(t.Context(), "etcd", joining))
	state := func() error {
		return b.api.Get(t.Context(), client.ObjectKey{Namespace: cr.Namespace, Name: "default-etcd-state"}, &corev1.ConfigMap{})
	}
	b.reconcile()
	if err := state(); err != nil {
		t.Fatalf("the state of a running etcd is gone: %v", err)
	}
	now := b.cloud()
	now.Spec.Etcd.Disable = new(true)
	require.NoError(t, b.api.Update(t.Context(), now))
	for range 3 {
		b.reconcile()
	}
	if err := state(); !apierrors.IsNotFound(err) {
		t.Errorf("new members would look for the earlier ones: %v", err)
	}
}

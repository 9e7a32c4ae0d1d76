// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/status"
)

// stops is a cloud that is stopped while a test plays its operator and its kubelets.
type stops struct {
	*testing.T
	client.WithWatch
	ended chan error
}

// stopping has a service with one pod, an agent with a database, and one without.
func stopping(t *testing.T) *stops {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, "app": name},
			OwnerReferences: []metav1.OwnerReference{{Kind: v1alpha1.Kind, Name: DefaultName, Controller: new(true)}}}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	agent := func(name string) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: meta(name), Spec: appsv1.DaemonSetSpec{Selector: selector(name)}}
	}
	pod := &corev1.Pod{ObjectMeta: meta("default-region"), Spec: corev1.PodSpec{NodeName: "node1"}}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(theCloud("db"), agent("default-yunionagent"), agent("default-telegraf"), pod,
		&appsv1.Deployment{ObjectMeta: meta("default-region"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector("default-region")}}).
		WithIndex(&v1alpha1.OnecloudCluster{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	return &stops{t, c, make(chan error, 1)}
}

func (s *stops) begin() {
	go func() {
		s.ended <- Stop(s.Context(), s, client.ObjectKeyFromObject(theCloud("")), func(string, string) {})
	}()
}

// reports writes what an operator says of the cloud.
func (s *stops) reports(reason string) {
	s.Helper()
	s.change(theCloud(""), func(o client.Object) {
		o.(*v1alpha1.OnecloudCluster).Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: reason, Status: metav1.ConditionFalse}}
	})
}

func (s *stops) change(o client.Object, change func(client.Object)) {
	s.Helper()
	if err := s.Get(context.WithoutCancel(s.Context()), client.ObjectKeyFromObject(o), o); err != nil {
		s.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change(o)
	if err := s.Patch(s.Context(), o, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
}

// until waits for a condition of an object.
func (s *stops) until(what string, o client.Object, is func() bool) {
	s.Helper()
	for range 200 {
		if err := s.Get(s.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			s.Fatal(err)
		}
		if is() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.Fatalf("%s: it does not come", what)
}

func (s *stops) goesOn(why string) {
	s.Helper()
	select {
	case err := <-s.ended:
		s.Fatalf("it takes the cloud for stopped although %s (%v)", why, err)
	case <-time.After(3 * stopInterval / 2):
	}
}

// TestStopEndsEveryWriter: services, and agents with a database of their own, until their last pod is gone, even if some are made late. Start brings back
// what was stopped.
func TestStopEndsEveryWriter(t *testing.T) {
	s := stopping(t)
	region, agent, telegraf := &appsv1.Deployment{}, &appsv1.DaemonSet{}, &appsv1.DaemonSet{}
	region.Namespace, region.Name = DefaultNamespace, "default-region"
	agent.Namespace, agent.Name = DefaultNamespace, "default-yunionagent"
	telegraf.Namespace, telegraf.Name = DefaultNamespace, "default-telegraf"
	stopped := func() bool { return *region.Spec.Replicas == 0 }
	s.reports(status.ReasonPaused)
	s.change(theCloud(""), func(o client.Object) { o.SetAnnotations(map[string]string{v1alpha1.AnnotationPaused: "true"}) })
	s.begin()
	s.until("the service stops", region, stopped)
	s.until("the agent stops", agent, func() bool { return agent.Spec.Template.Spec.NodeSelector[v1alpha1.LabelNoNode] != "" })
	s.goesOn("a pod is still ending")
	s.change(region, func(o client.Object) { o.(*appsv1.Deployment).Spec.Replicas = new(int32(2)) }) // by an operator that was late
	s.until("the service stops again", region, stopped)
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = DefaultNamespace, "default-region"
	if err := s.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
	s.until("other agents go on", telegraf, func() bool { return len(telegraf.Spec.Template.Spec.NodeSelector) == 0 })
	if err := Start(t.Context(), s, client.ObjectKeyFromObject(theCloud(""))); err != nil {
		t.Fatal(err)
	}
	s.until("the agent starts", agent, func() bool { return len(agent.Spec.Template.Spec.NodeSelector) == 0 && len(agent.Annotations) == 0 })
}

// TestStopDoesNotTrustAnEarlierPause: after a start, the operator still says that the cloud is paused, and makes pods.
func TestStopDoesNotTrustAnEarlierPause(t *testing.T) {
	s := stopping(t)
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = DefaultNamespace, "default-region"
	if err := s.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	s.reports(status.ReasonPaused)
	s.begin()
	s.goesOn("the operator follows the last start")
	cloud := theCloud("")
	s.until("it waits", cloud, func() bool { return cloud.Annotations[v1alpha1.AnnotationPaused] == "" })
	s.reports("Progressing")
	s.until("it pauses", cloud, func() bool { return cloud.Annotations[v1alpha1.AnnotationPaused] == "true" })
	s.goesOn("the operator has not paused")
	s.reports(status.ReasonPaused)
	if err := <-s.ended; err != nil {
		t.Fatal(err)
	}
}

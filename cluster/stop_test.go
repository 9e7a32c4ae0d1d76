// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// stops is a cloud being stopped, with the test as its operator and kubelets.
type stops struct {
	*testing.T
	client.WithWatch
	ended chan error
	by    string
	// watched receives a value for each watch that starts: the fake API server loses changes between a list and the following watch.
	watched chan struct{}
}

// stopping returns a cloud with a one-pod service, an agent with a database, and one without.
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
	s := &stops{T: t, ended: make(chan error, 1), watched: make(chan struct{}, 100)}
	s.WithWatch = interceptor.NewClient(c, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, list, opts...)
			s.watched <- struct{}{}
			return w, err
		},
	})
	return s
}

func (s *stops) begin() {
	go func() {
		s.ended <- Stop(s.Context(), s, client.ObjectKeyFromObject(theCloud("")), s.by, func(string, string) {})
	}()
}

// reports sets what an operator reports about the cloud.
func (s *stops) reports(reason string) {
	s.Helper()
	s.change(theCloud(""), func(o client.Object) {
		o.(*v1alpha1.OnecloudCluster).Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: reason, Status: metav1.ConditionFalse}}
	})
}

func (s *stops) change(o client.Object, change func(client.Object)) {
	s.Helper()
	require.NoError(s, s.Get(context.WithoutCancel(s.Context()), client.ObjectKeyFromObject(o), o))
	before := o.DeepCopyObject().(client.Object)
	change(o)
	require.NoError(s, s.Patch(s.Context(), o, client.MergeFrom(before)))
}

// until waits for a condition of an object.
func (s *stops) until(what string, o client.Object, is func() bool) {
	s.Helper()
	for range 200 {
		require.NoError(s, s.Get(s.Context(), client.ObjectKeyFromObject(o), o))
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

// TestStopEndsEveryWriter checks that Stop waits for the last pod of services, and of agents with databases, even if some are created late. Start
// restores them.
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
	s.goesOn("a pod is still terminating")
	s.change(region, func(o client.Object) { o.(*appsv1.Deployment).Spec.Replicas = new(int32(2)) }) // by an operator that was late
	s.until("the service stops again", region, stopped)
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = DefaultNamespace, "default-region"
	require.NoError(t, s.Delete(t.Context(), pod))
	require.NoError(t, <-s.ended)
	s.until("other agents go on", telegraf, func() bool { return len(telegraf.Spec.Template.Spec.NodeSelector) == 0 })
	require.NoError(t, Start(t.Context(), s, client.ObjectKeyFromObject(theCloud(""))))
	s.until("the agent starts", agent, func() bool { return len(agent.Spec.Template.Spec.NodeSelector) == 0 && len(agent.Annotations) == 0 })
}

// TestStopDoesNotTrustAnEarlierPause: after a start, the operator still reports a paused cloud, and creates pods.
func TestStopDoesNotTrustAnEarlierPause(t *testing.T) {
	s := stopping(t)
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = DefaultNamespace, "default-region"
	require.NoError(t, s.Delete(t.Context(), pod))
	s.reports(status.ReasonPaused)
	s.begin()
	<-s.watched
	s.goesOn("the operator follows the last start")
	cloud := theCloud("")
	s.until("it waits", cloud, func() bool { return cloud.Annotations[v1alpha1.AnnotationPaused] == "" })
	s.reports("Progressing")
	<-s.watched
	s.until("it pauses", cloud, func() bool { return cloud.Annotations[v1alpha1.AnnotationPaused] == "true" })
	s.goesOn("the operator has not paused")
	s.reports(status.ReasonPaused)
	require.NoError(t, <-s.ended)
}

// paused returns a cloud whose operator has paused, and whose pods have ended.
func paused(t *testing.T) (s *stops, key client.ObjectKey, region *appsv1.Deployment, cloud *v1alpha1.OnecloudCluster) {
	t.Helper()
	s = stopping(t)
	pod, region, cloud := &corev1.Pod{}, &appsv1.Deployment{}, theCloud("")
	pod.Namespace, pod.Name = DefaultNamespace, "default-region"
	region.Namespace, region.Name = DefaultNamespace, "default-region"
	require.NoError(t, s.Delete(t.Context(), pod))
	s.reports(status.ReasonPaused)
	return s, client.ObjectKeyFromObject(cloud), region, cloud
}

// TestStopRemembersThePause checks that a start restores an earlier pause, even after two stops, and restarts what the operator does not manage.
func TestStopRemembersThePause(t *testing.T) {
	for before, all := range map[string]bool{"": false, "glance": true, "true": true} {
		s, key, region, cloud := paused(t)
		s.change(cloud, func(o client.Object) { o.SetAnnotations(map[string]string{v1alpha1.AnnotationPaused: before}) })
		for _, s.by = range []string{"restore-1", "restore-2", ""} {
			if s.by == "restore-1" && before != "true" {
				s.begin()
				<-s.watched // it waits for the operator
				s.reports("Progressing")
				<-s.watched // it has paused
				s.until("it pauses", cloud, func() bool { return cloud.Annotations[v1alpha1.AnnotationPaused] == "true" })
				s.reports(status.ReasonPaused)
			} else {
				s.begin()
			}
			require.NoError(t, <-s.ended)
		}
		s.until("it notes how it was", cloud, func() bool {
			return cloud.Annotations[v1alpha1.AnnotationPausedBefore] == before && cloud.Annotations[v1alpha1.AnnotationStoppedBy] == "restore-1"
		})
		if started, err := startAgain(t.Context(), s, key, "restore-2", workflow.Discard{}); err != nil || started {
			t.Errorf("%q: another operation starts it: %v", before, err)
		}
		if started, err := startAgain(t.Context(), s, key, "restore-1", workflow.Discard{}); err != nil || !started {
			t.Errorf("%q: it does not start: %v", before, err)
		}
		s.until("it is paused as before", cloud, func() bool {
			_, noted := cloud.Annotations[v1alpha1.AnnotationPausedBefore]
			return cloud.Annotations[v1alpha1.AnnotationPaused] == before && !noted && cloud.Annotations[v1alpha1.AnnotationStoppedBy] == ""
		})
		s.until("the service runs if the operator would not make it", region, func() bool { return (*region.Spec.Replicas == 2) == all })
	}
}

// TestAPersonsStopStays checks that an operation does not start what a user stopped, even with an ocadm that recorded nothing, unless it succeeds.
func TestAPersonsStopStays(t *testing.T) {
	for name, noted := range map[string]bool{"noted": true, "by an earlier ocadm": false} {
		s, key, region, cloud := paused(t)
		s.change(cloud, func(o client.Object) {
			o.SetAnnotations(map[string]string{v1alpha1.AnnotationPaused: "true"})
			if noted {
				o.SetAnnotations(map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: ""})
			}
		})
		s.change(region, func(o client.Object) {
			o.(*appsv1.Deployment).Spec.Replicas = new(int32(0))
			o.SetAnnotations(map[string]string{operation.AnnotationStopped: "2"})
		})
		s.by = "move-1"
		s.begin()
		require.NoError(t, <-s.ended)
		if started, err := startAgain(t.Context(), s, key, "move-1", workflow.Discard{}); err != nil || started {
			t.Errorf("%s: started: %v, %v", name, started, err)
		}
		s.until("it stays stopped", cloud, func() bool { return cloud.Annotations[v1alpha1.AnnotationPaused] == "true" })
		require.NoError(t, Start(t.Context(), s, key))
		s.until("it is not paused", cloud, func() bool { return len(cloud.Annotations) == 0 })
	}
}

// TestEndPause checks that a pause does not keep a change from any component.
func TestEndPause(t *testing.T) {
	s := stopping(t)
	key := client.ObjectKeyFromObject(theCloud(""))
	s.change(theCloud(""), func(o client.Object) {
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "glance"})
	})
	for _, want := range []string{"glance", ""} {
		was := ""
		err := endPause(t.Context(), s, key, func(_ string, args ...any) { was = fmt.Sprint(args...) })
		if err != nil || was != want {
			t.Errorf("%q, %v, want %q", was, err, want)
		}
	}
	require.NoError(t, Start(t.Context(), s, key))
	cloud := theCloud("")
	s.until("it is not paused", cloud, func() bool { return len(cloud.Annotations) == 0 })
}

// A user who interrupts a stop, or whose timeout is too short, learns what it leaves.
func TestInterruptedStop(t *testing.T) {
	for cause, status := range map[error]int{context.Canceled: finding.ExitInterrupted, context.DeadlineExceeded: 70} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := stopping(t)
		err := Stop(ctx, s, client.ObjectKeyFromObject(theCloud("")), "", func(_, why string) {
			if why == "the operator has not paused yet" {
				cancel(cause)
			}
		})
		next := fmt.Sprint(err)
		for _, f := range finding.Of(err) {
			next = f.Remedy
		}
		if finding.ExitStatus(err) != status || !strings.Contains(next, "ocadm cluster start") {
			t.Error(err)
		}
	}
}

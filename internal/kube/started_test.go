// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A Deployment whose newest pod cannot start is given up after a while, later if an image is being pulled, and not if the pod starts after all.
func TestWaitStarted(t *testing.T) {
	waits := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}
	}
	unscheduled := corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node has room"}}}
	const long, soon = time.Hour, 2 * time.Minute
	for name, c := range map[string]struct {
		first, then corev1.PodStatus // after two minutes
		pulls       bool
		takes       time.Duration
		why         string
	}{
		"no image":               {waits("ErrImagePull"), waits("ImagePullBackOff"), false, StartLimit, "ImagePullBackOff"},
		"no node":                {unscheduled, unscheduled, false, StartLimit, "no node has room"},
		"no node, then no image": {unscheduled, waits("ErrImagePull"), false, StartLimit, "ErrImagePull"},
		"it starts":              {unscheduled, waits("ContainerCreating"), false, long, ""},
		"no image later":         {waits("ContainerCreating"), waits("ErrImagePull"), false, soon + StartLimit, "ErrImagePull"},
		"it is pulled again":     {waits("ErrImagePull"), waits("ErrImagePull"), true, longLimit, "ErrImagePull"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			app := map[string]string{"app": "x"}
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app}}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x-new", UID: "2", Labels: app, CreationTimestamp: metav1.Now()}, Status: c.first}
			pod.Spec.Containers = []corev1.Container{{Image: "x"}}
			old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x-old", UID: "3", Labels: app, CreationTimestamp: metav1.NewTime(time.Now().Add(-long))}}
			named := func(o client.Object) []string { return []string{o.GetName()} }
			k := fake.NewClientBuilder().WithScheme(Scheme()).WithIndex(d, "metadata.name", named).WithObjects(d, pod, old).WithStatusSubresource(pod).Build()
			time.AfterFunc(soon, func() {
				pod.Status = c.then
				if err := k.Status().Update(ctx, pod); err != nil {
					t.Error(err)
				}
				e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "e", UID: "1"}, Type: corev1.EventTypeNormal, Reason: pullingReason, Message: `Pulling image "x"`,
					InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "n", Name: pod.Name}}
				if c.pulls {
					if err := k.Create(ctx, e); err != nil {
						t.Error(err)
					}
				}
			})
			began := time.Now()
			err := WaitStarted(ctx, k, d, StartLimit, func(string) {})
			if took := time.Since(began); took != c.takes || (ctx.Err() == nil) != (c.why != "") || !strings.Contains(err.Error(), c.why) ||
				errors.Is(err, context.DeadlineExceeded) == strings.Contains(c.why, "Image") {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
}

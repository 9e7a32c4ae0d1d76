// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func event(n int, pod, kind, reason, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Name: "e" + strconv.Itoa(n), UID: types.UID(strconv.Itoa(n)), ResourceVersion: strconv.Itoa(n)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod}, Type: kind, Reason: reason, Message: message,
	}
}

func TestActivityOfPods(t *testing.T) {
	var a activity
	known := map[types.UID]client.Object{}
	for i, step := range []struct {
		event   *corev1.Event
		moved   bool
		pulling string
	}{
		{event(1, "a", corev1.EventTypeNormal, "Scheduled", ""), false, ""}, // it already existed
		{event(2, "a", corev1.EventTypeNormal, "Pulling", `Pulling image "registry/x:1"`), true, "registry/x:1"},
		{event(3, "b", corev1.EventTypeNormal, "Pulling", `Pulling image "registry/y:1"`), true, "registry/x:1, registry/y:1"},
		{event(4, "a", corev1.EventTypeNormal, "Pulled", ""), true, "registry/y:1"},
		{event(5, "b", corev1.EventTypeWarning, "Failed", "no such image"), false, ""},
		{event(5, "b", corev1.EventTypeNormal, "BackOff", ""), false, ""}, // an existing event counted up
	} {
		known[step.event.UID] = step.event
		if moved := a.take(known); moved != step.moved || a.pulling() != step.pulling {
			t.Errorf("step %d: moved %t, pulling %q; want %t, %q", i, moved, a.pulling(), step.moved, step.pulling)
		}
	}
}

func TestActivityLastsUntilPullEnds(t *testing.T) {
	s := Scheme()
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().WithScheme(s).WithObjects(event(1, "a", corev1.EventTypeNormal, "Pulling", `Pulling image "x"`)).Build()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		n := 0
		Activity(ctx, c, func(string) { n++ })
		if n < 20 {
			t.Errorf("in ten minutes of a pull it moved %d times", n)
		}
	})
}

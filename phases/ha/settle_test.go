// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

func pod(name string, ready corev1.ConditionStatus) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

// A fault starts when the pods that an earlier one disturbed are ready again. Pods that were not ready before the test, or never become ready, do not block it.
func TestSettle(t *testing.T) {
	for _, tt := range []struct {
		name string
		// rounds are the pods that each poll returns; the last round repeats.
		rounds [][]corev1.Pod
		took   time.Duration
	}{
		{"undisturbed", [][]corev1.Pod{{pod("a", corev1.ConditionTrue)}}, 0},
		{"was never ready", [][]corev1.Pod{{pod("a", corev1.ConditionFalse)}}, 0},
		{"ready again", [][]corev1.Pod{nil, {pod("a", corev1.ConditionFalse)}, {pod("a", corev1.ConditionFalse)}, {pod("a", corev1.ConditionTrue)}}, 2 * interval},
		{"stays down", [][]corev1.Pod{nil, {pod("a", corev1.ConditionFalse)}}, settleTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				k := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
						list.(*corev1.PodList).Items = tt.rounds[min(looks, len(tt.rounds)-1)]
						looks++
						return nil
					}}).Build()
				test := &Test{K: k}
				if err := test.settle(t.Context(), workflow.Discard{}); err != nil { // before the first fault
					t.Fatal(err)
				}
				begun := time.Now()
				require.NoError(t, test.settle(t.Context(), workflow.Discard{}))
				if took := time.Since(begun); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

func TestNotReady(t *testing.T) {
	done, leaving, own := pod("done", corev1.ConditionFalse), pod("leaving", corev1.ConditionFalse), pod(name, corev1.ConditionFalse)
	done.Status.Phase = corev1.PodSucceeded
	leaving.DeletionTimestamp = new(metav1.Now())
	got := notReady([]corev1.Pod{pod("up", corev1.ConditionTrue), pod("down", corev1.ConditionFalse), done, leaving, own})
	if len(got) != 1 || got[0] != "onecloud/down" {
		t.Errorf("%q", got)
	}
}

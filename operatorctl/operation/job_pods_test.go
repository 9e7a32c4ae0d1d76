// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// The message says why a Job cannot be created, and why Kubernetes does not create its pod.
func TestJobThatDoesNotBegin(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "cloud"}}
	o := onMachine()
	o.Namespace, o.Spec.Cloud = "n", "c"
	refuses := errors.New("exceeded quota: pods")
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, o).WithStatusSubresource(o, cloud).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, is := object.(*batchv1.Job); is && refuses != nil {
				return refuses
			}
			object.SetCreationTimestamp(metav1.Now()) // as an API server does
			return c.Create(ctx, object, options...)
		}}).Build()
	action := Action{Name: v1alpha1.ActionJoinMachine, Timeout: time.Hour, Job: func(context.Context, *v1alpha1.OnecloudOperation) (Job, error) { return Job{Account: "a"}, nil }}
	c := New(Options{Means: Means{Client: api, Direct: api, Probes: []Probe{}}, Events: &recorder{}, Actions: []Action{action}, JobImage: "r/ocadm:v1"})
	look := func(want string, fails bool) {
		t.Helper()
		r, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if getErr := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); getErr != nil {
			t.Fatal(getErr)
		}
		if (err != nil) != fails || !strings.Contains(o.Status.Message, want) || r.RequeueAfter == 0 || r.RequeueAfter > noPod {
			t.Errorf("%q, again in %s, %v", o.Status.Message, r.RequeueAfter, err)
		}
	}
	for range 2 {
		look("its Job cannot be created: exceeded quota: pods", true)
	}
	refuses = nil
	for range 2 {
		look(waitsForPod, false)
	}
	job := &batchv1.Job{}
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(o), job))
	job.CreationTimestamp = metav1.NewTime(time.Now().Add(-noPod))
	require.NoError(t, api.Update(t.Context(), job))
	look("Kubernetes has not created a pod: kubectl -n n describe job join-worker-1-1", false)
	taken := onMachine()
	taken.Status.Worker = &v1alpha1.OperationWorker{Pod: "p"}
	for name, why := range map[string]string{"it has one": podless(o, job, 1, time.Now()), "one works": podless(taken, job, 0, time.Now()), "young": podless(o, job, 0, job.CreationTimestamp.Time)} {
		if why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// TestResumedJobHasTime checks that a resumed operation gets its full time again also in a Job, whose pod no longer sees that it was paused.
func TestResumedJobHasTime(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "cloud"}}
	o := onMachine()
	o.Namespace, o.Spec.Cloud = "n", "c"
	o.Status.Phase, o.Status.RanSeconds, o.Status.Turn = v1alpha1.OperationPaused, 3600, 1
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, o).WithStatusSubresource(o, cloud).Build()
	action := Action{Name: v1alpha1.ActionJoinMachine, Timeout: time.Hour, Job: func(context.Context, *v1alpha1.OnecloudOperation) (Job, error) { return Job{Account: "a"}, nil }}
	c := New(Options{Means: Means{Client: api, Direct: api, Probes: []Probe{}}, Events: &recorder{}, Actions: []Action{action}, JobImage: "r/ocadm:v1"})
	if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.Status.Phase != v1alpha1.OperationPlanning || o.Status.RanSeconds != 0 {
		t.Errorf("%s, has run %d s, %v", o.Status.Phase, o.Status.RanSeconds, err)
	}
}

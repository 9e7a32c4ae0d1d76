// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// watchUnstructured makes the fake client's watch return what a real one does for an unstructured list.
func watchUnstructured(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
	w, err := c.Watch(ctx, list, o...)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e.Object)
		e.Object = &unstructured.Unstructured{Object: m}
		return e, err == nil
	}), nil
}

// A cloud that is ready only by the snapshot's status, and degrades when the kubelets report, is not ready until it stays so.
func TestWaitHeld(t *testing.T) { synctest.Test(t, held) }

func held(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: DefaultName}}
	be := func(ready bool) {
		c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Pods", Message: "glance starts"}
		if ready {
			c.Status, c.Message = metav1.ConditionTrue, ""
		}
		meta.SetStatusCondition(&cloud.Status.Conditions, c)
	}
	be(true)
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).
		WithIndex(cloud, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{Watch: watchUnstructured}).Build()
	set := func(ready bool) {
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(cloud), cloud); err != nil {
			t.Error(err)
		}
		be(ready)
		if err := k.Update(t.Context(), cloud); err != nil {
			t.Error(err)
		}
	}
	var seen []bool
	report := func(s Status) {
		later := func(ready bool) { time.AfterFunc(time.Second, func() { set(ready) }) } // the fake client has no events from before its watch
		switch seen = append(seen, s.Ready); len(seen) {
		case 2: // the first look of the hold
			later(false)
		case 4: // the first look of the next wait
			later(true)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, WaitHeld(ctx, k, client.ObjectKeyFromObject(cloud), time.Minute, report))
	if want := []bool{true, true, false, false, true, true}; !slices.Equal(seen, want) {
		t.Errorf("seen %v, want %v", seen, want)
	}
	seen = nil
	if err := WaitHeld(ctx, k, client.ObjectKeyFromObject(cloud), 0, report); err != nil || !slices.Equal(seen, []bool{true}) {
		t.Errorf("without a hold: seen %v, %v", seen, err)
	}
	short, cancelShort := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelShort()
	err := WaitHeld(short, k, client.ObjectKeyFromObject(cloud), time.Minute, func(Status) {})
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7004" || !strings.Contains(f[0].Cause, "stay ready for 1m0s") {
		t.Errorf("a timeout in the hold: %v", err)
	}
}

// At the timeout, the evidence does not repeat the cause.
func TestCauseOfATimeoutIsNotRepeated(t *testing.T) {
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	key := client.ObjectKey{Namespace: DefaultNamespace, Name: DefaultName}
	last := Status{Components: []v1alpha1.ComponentStatus{{Name: "region", State: v1alpha1.Degraded, Message: "no image"}}}
	denied := interceptor.NewClient(k, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return context.DeadlineExceeded
	}})
	f := finding.Of(notReady(t.Context(), denied, key, last, context.DeadlineExceeded))[0]
	if f.Cause != "region: Degraded: no image" || len(f.Evidence) > 0 || strings.Contains(f.Remedy, "start") {
		t.Errorf("%+v", f)
	}
	last.Components = append(last.Components, v1alpha1.ComponentStatus{Name: "glance", State: v1alpha1.Waiting})
	f = finding.Of(notReady(t.Context(), denied, key, last, context.DeadlineExceeded))[0]
	if f.Cause != "region: Degraded: no image (and 1 more)" || !slices.Equal(f.Evidence, []string{"glance: Waiting"}) {
		t.Errorf("%+v", f)
	}
}

// A wait reports why it cannot read the cloud, and does not wait for a permission.
func TestWaitForAnAnswer(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "onecloudclusters"}
	for name, c := range map[string]struct {
		err  error
		code string
		took time.Duration
	}{
		"no permission":  {apierrors.NewForbidden(resource, "", errors.New("no list")), "OCA-4205", 0},
		"expired token":  {apierrors.NewUnauthorized("no list"), "OCA-4204", 0},
		"server is down": {errors.New("no list"), "OCA-7004", time.Hour},
		"server starts":  {apierrors.NewServiceUnavailable("no list"), "OCA-7004", time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return c.err },
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return c.err
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var last Status
			began := time.Now()
			err := kube.Explain(Wait(ctx, k, client.ObjectKey{Namespace: DefaultNamespace, Name: DefaultName}, func(s Status) { last = s }))
			l := finding.Of(err)
			if took := time.Since(began); len(l) != 1 || l[0].Code != c.code || !strings.Contains(l[0].Cause, "no list") || took != c.took {
				t.Errorf("%s: %+v after %s", name, l, took)
			}
			if _, following := FollowOperation(ctx, k, client.ObjectKey{Namespace: DefaultNamespace, Name: "a"}, func(*Operation) {}); (apierrors.IsForbidden(following) || apierrors.IsUnauthorized(following)) != (c.took == 0) {
				t.Errorf("%s: following an operation: %v", name, following)
			}
			if shown := strings.Contains(last.Unreachable, "no list"); shown != (c.took > 0) || shown && (last.Name != DefaultName || last.Components == nil) {
				t.Errorf("%s: reported %+v", name, last)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// TestOneAnnotationOneOperation: while its annotation is answered, the status of a cloud changes, and a cache shows every version of it, late.
func TestOneAnnotationOneOperation(t *testing.T) {
	made := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{v1alpha1.AnnotationOperation: v1alpha1.ActionBackup},
	}}
	made.Status.Version, made.Status.Release = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 1, Version: "v4.0.4"}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(made).WithStatusSubresource(made).Build()
	c := New(Options{Means: Means{Client: api}, Events: &recorder{}})
	var seen []*v1alpha1.OnecloudCluster
	look := func() *v1alpha1.OnecloudCluster {
		now := &v1alpha1.OnecloudCluster{}
		require.NoError(t, api.Get(t.Context(), key, now))
		if len(seen) == 0 || now.ResourceVersion != seen[len(seen)-1].ResourceVersion {
			seen = append(seen, now.DeepCopy())
		}
		return now
	}
	look()
	for turn := 0; turn < len(seen); turn++ {
		if turn < 10 {
			now := look()
			now.Status.ObservedGeneration++
			require.NoError(t, api.Status().Update(t.Context(), now))
			look()
		}
		_, err := c.trigger(t.Context(), seen[turn], nil)
		require.NoError(t, err)
		look()
	}
	last := &v1alpha1.OnecloudCluster{}
	operations := &v1alpha1.OnecloudOperationList{}
	require.NoError(t, errors.Join(api.Get(t.Context(), key, last), api.List(t.Context(), operations)))
	if n := len(operations.Items); n != 1 || operations.Items[0].Spec.Action != v1alpha1.ActionBackup {
		t.Errorf("%d operations: %+v", n, operations.Items)
	}
	if word, still := last.Annotations[v1alpha1.AnnotationOperation]; still {
		t.Errorf("the annotation is %q", word)
	}
}

// TestNamedAnnotationTwice: a second request with the same word after the action is another request.
func TestNamedAnnotationTwice(t *testing.T) {
	made := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	made.Status.Version, made.Status.Release = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 1, Version: "v4.0.4"}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(made).WithStatusSubresource(made).Build()
	c := New(Options{Means: Means{Client: api}, Events: &recorder{}})
	for n := range 2 {
		now := &v1alpha1.OnecloudCluster{}
		require.NoError(t, api.Get(t.Context(), key, now))
		now.Annotations = map[string]string{v1alpha1.AnnotationOperation: v1alpha1.ActionBackup + " nightly"}
		require.NoError(t, api.Update(t.Context(), now))
		for range 2 {
			err := api.Get(t.Context(), key, now)
			if err == nil {
				_, err = c.trigger(t.Context(), now, nil)
			}
			require.NoError(t, err)
		}
		operations := &v1alpha1.OnecloudOperationList{}
		if err := api.List(t.Context(), operations); err != nil || len(operations.Items) != n+1 {
			t.Errorf("%d operations, %v", len(operations.Items), err)
		}
	}
}

// TestRefusedAnnotationIsReported: the annotation disappears in any case, so an event must say that it requested nothing.
func TestRefusedAnnotationIsReported(t *testing.T) {
	made := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{v1alpha1.AnnotationOperation: "Upgrade c-upgrade-1"},
	}}
	made.Status.Version, made.Status.Release = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 1, Version: "v4.0.4"}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(made).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { // as the schema does
			return apierrors.NewInvalid(schema.GroupKind{Kind: v1alpha1.OperationKind}, "", field.ErrorList{
				field.NotSupported(field.NewPath("spec", "action"), "Upgrade", []string{v1alpha1.ActionUpdate})})
		},
	}).Build()
	heard := &listener{}
	_, err := New(Options{Means: Means{Client: api}, Events: heard}).trigger(t.Context(), made, nil)
	require.NoError(t, err)
	for _, want := range []string{"OperationRefused", v1alpha1.AnnotationOperation, `"Upgrade"`, v1alpha1.ActionUpdate} {
		if !strings.Contains(heard.said, want) {
			t.Errorf("the event %q does not contain %s", heard.said, want)
		}
	}
}

// TestWithdrawnEditCancelsTheUpdate: an update that has changed nothing ends if spec.version no longer requests it. It would write its version back.
func TestWithdrawnEditCancelsTheUpdate(t *testing.T) {
	for _, c := range []struct {
		name, version string
		change        func(*v1alpha1.OnecloudOperation)
		cancels       bool
	}{
		{"as requested", "v4.0.5", nil, false},
		{"back again", "v4.0.4", nil, true},
		{"another one", "v4.0.6", nil, true},
		{"checks run", "v4.0.4", func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout = &v1alpha1.Rollout{Hold: true} }, true},
		{"the cloud is changed", "v4.0.4", func(o *v1alpha1.OnecloudOperation) { o.Status.Rollout = &v1alpha1.Rollout{Undo: "{}"} }, false},
		{"reverting", "v4.0.4", func(o *v1alpha1.OnecloudOperation) { o.Status.Phase = v1alpha1.OperationReverting }, false},
		{"of a command", "v4.0.4", func(o *v1alpha1.OnecloudOperation) { o.Spec.Requester = "admin" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			cloud.Status.Version, cloud.Status.Release, cloud.Spec.Version = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 1, Version: "v4.0.4"}, "v4.0.5"
			update := wanted(cloud, nil)
			update.Status.Phase = v1alpha1.OperationRunning
			if c.change != nil {
				c.change(update)
			}
			cloud.Spec.Version = c.version
			api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, update).Build()
			_, err := New(Options{Means: Means{Client: api}, Events: &recorder{}}).trigger(t.Context(), cloud, []*v1alpha1.OnecloudOperation{update})
			require.NoError(t, err)
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(update), update); err != nil || cancelled(update) != c.cancels {
				t.Errorf("cancelled %t, %v", cancelled(update), err)
			}
		})
	}
}

type listener struct{ said string }

func (l *listener) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	l.said += reason + ": " + fmt.Sprintf(note, args...)
}

// TestRepeatedFailuresWait: a program that applies a manifest again and again gets the update that failed at growing intervals. A command gets it at once.
func TestRepeatedFailuresWait(t *testing.T) {
	now := time.Now()
	failed := func(change ...func(*v1alpha1.OnecloudOperation)) *v1alpha1.OnecloudOperation {
		o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Requester: byEdit, Update: &v1alpha1.UpdateParameters{Version: "v4.0.5"}}}
		o.Status.Phase, o.Status.End, o.Status.Rollout = v1alpha1.OperationReverted, metav1.NewTime(now), &v1alpha1.Rollout{Undo: "{}"}
		for _, c := range change {
			c(o)
		}
		return o
	}
	other := failed(func(o *v1alpha1.OnecloudOperation) { o.Spec.Update.Version = "v4.0.6" })
	command := failed(func(o *v1alpha1.OnecloudOperation) { o.Spec.Requester = "root@node1" })
	refused := failed(func(o *v1alpha1.OnecloudOperation) { o.Status.Phase, o.Status.Rollout = v1alpha1.OperationFailed, nil })
	succeeded := failed(func(o *v1alpha1.OnecloudOperation) { o.Status.Phase = v1alpha1.OperationSucceeded })
	old := failed(func(o *v1alpha1.OnecloudOperation) { o.Status.End = metav1.NewTime(now.Add(-time.Hour)) })
	ahead := failed(func(o *v1alpha1.OnecloudOperation) { o.Status.End = metav1.NewTime(now.AddDate(1, 0, 0)) })
	for name, c := range map[string]struct {
		all  []*v1alpha1.OnecloudOperation
		wait time.Duration
	}{
		"never failed":        {nil, 0},
		"failed once":         {[]*v1alpha1.OnecloudOperation{failed()}, 0},
		"failed twice":        {[]*v1alpha1.OnecloudOperation{old, failed()}, 10 * time.Minute},
		"failed thrice":       {[]*v1alpha1.OnecloudOperation{old, old, failed()}, 20 * time.Minute},
		"failed all day":      {slices.Repeat([]*v1alpha1.OnecloudOperation{failed()}, 20), 24 * time.Hour},
		"long ago":            {[]*v1alpha1.OnecloudOperation{old, old}, 0},
		"a clock was ahead":   {[]*v1alpha1.OnecloudOperation{ahead, ahead}, 0},
		"another version":     {[]*v1alpha1.OnecloudOperation{other, other, failed()}, 0},
		"by commands":         {[]*v1alpha1.OnecloudOperation{command, command, failed()}, 0},
		"refused once":        {[]*v1alpha1.OnecloudOperation{refused}, 0},
		"refused twice":       {[]*v1alpha1.OnecloudOperation{refused, refused}, time.Minute},
		"refused all day":     {slices.Repeat([]*v1alpha1.OnecloudOperation{refused}, 20), 24 * time.Hour},
		"succeeded meanwhile": {[]*v1alpha1.OnecloudOperation{failed(), failed(), succeeded, failed()}, 0},
	} {
		cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		cloud.Status.Version, cloud.Status.Release, cloud.Spec.Version = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 1, Version: "v4.0.4"}, "v4.0.5"
		api, heard := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build(), &listener{}
		wait, err := New(Options{Means: Means{Client: api}, Events: heard}).trigger(t.Context(), cloud, c.all)
		require.NoError(t, err)
		operations := &v1alpha1.OnecloudOperationList{}
		require.NoError(t, api.List(t.Context(), operations))
		if wait > c.wait || wait < c.wait-30*time.Second || (len(operations.Items) == 0) != (c.wait > 0) || strings.Contains(heard.said, "ocadm cluster update --name c --namespace n --version v4.0.5") != (c.wait > 0) {
			t.Errorf("%s: waits %s, %d operations, event %q", name, wait, len(operations.Items), heard.said)
		}
	}
	if failures, again := repeated(command, []*v1alpha1.OnecloudOperation{failed(), failed()}); failures != 0 || !again.IsZero() {
		t.Errorf("a command waits until %s", again)
	}
}

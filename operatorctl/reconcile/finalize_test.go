// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

// leaving is a cloud being deleted, with some of its objects.
func leaving(t *testing.T, change func(*v1alpha1.OnecloudCluster), objs ...client.Object) *bench {
	t.Helper()
	cr := newCloud()
	cr.Finalizers, cr.DeletionTimestamp = []string{v1alpha1.Finalizer}, &metav1.Time{Time: b0}
	if change != nil {
		change(cr)
	}
	for _, o := range objs {
		o.SetNamespace(cr.Namespace)
		o.SetLabels(map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cr.Name, v1alpha1.LabelComponent: "glance",
		})
	}
	return newBench(t, interceptor.Funcs{}, append(objs, cr)...)
}

// A deletion that the API server refuses is reported: otherwise the cloud would seem to run.
func TestRefusedDeletionIsReported(t *testing.T) {
	b := leaving(t, nil, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "default-glance"}})
	refuse := interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return errors.New("a webhook refuses it")
	}}
	b.r.acts.applier.Writer = interceptor.NewClient(b.api, refuse)
	if _, err := b.r.Reconcile(t.Context(), request()); err == nil {
		t.Error("it does not fail")
	}
	c := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionDegraded)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "a webhook refuses it") {
		t.Errorf("%+v", c)
	}
	b.r.acts.applier.Writer = b.api
	b.reconcile()
	if meta.IsStatusConditionTrue(b.cloud().Status.Conditions, v1alpha1.ConditionDegraded) {
		t.Error("it is still said to be refused")
	}
}

// A stuck deletion reports what blocks it: a finalizer immediately, a node after a while.
func TestStuckDeletionNamesTheCause(t *testing.T) {
	gone := metav1.NewTime(b0)
	b := leaving(t, nil,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "default-glance", DeletionTimestamp: &gone, Finalizers: []string{"example.com/keep"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "default-glance-x", DeletionTimestamp: &gone, Finalizers: []string{metav1.FinalizerDeleteDependents}},
			Spec: corev1.PodSpec{NodeName: "node7"}})
	const kept, node = "Deployment default-glance is blocked by the finalizer example.com/keep", `pod default-glance-x does not terminate on node "node7"`
	message := func() string {
		res := b.reconcile()
		if res.RequeueAfter <= 0 {
			t.Error("nobody looks again")
		}
		return meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionReady).Message
	}
	if m := message(); !strings.Contains(m, kept) || strings.Contains(m, "node7") {
		t.Errorf("at first: %q", m)
	}
	b.clock = b0.Add(time.Minute)
	if m := message(); !strings.Contains(m, kept) || !strings.Contains(m, node) {
		t.Errorf("later: %q", m)
	}
}

// A deletion may take long. Meanwhile, alerts end on nodes that have come back, on backups that are no longer due, and on deleted components.
func TestConditionsMoveDuringADeletion(t *testing.T) {
	b := leaving(t, func(cr *v1alpha1.OnecloudCluster) {
		meta.SetStatusCondition(&cr.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: "ComponentsDegraded"})
		for _, kind := range []string{v1alpha1.ConditionNodesReady, v1alpha1.ConditionBackupProven} {
			meta.SetStatusCondition(&cr.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Before"})
		}
	}, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "default-glance", Finalizers: []string{"example.com/keep"}}})
	b.reconcile()
	for _, kind := range []string{v1alpha1.ConditionNodesReady, v1alpha1.ConditionBackupProven} {
		if c := meta.FindStatusCondition(b.cloud().Status.Conditions, kind); c == nil || c.Status == metav1.ConditionFalse {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	if meta.IsStatusConditionTrue(b.cloud().Status.Conditions, v1alpha1.ConditionDegraded) {
		t.Error("it is Degraded")
	}
}

// An orphaned pod is reported, but only after the garbage collector has had time.
func TestStuckDeletionNamesPodsLeftBehind(t *testing.T) {
	b := leaving(t, nil, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "default-glance-x", UID: "x"}})
	for _, at := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {stuckAfter - time.Second, false}, {stuckAfter, true}, {2 * stuckAfter, true}} {
		b.clock = b0.Add(at.after)
		b.reconcile()
		m := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionReady).Message
		if got := strings.Contains(m, "(kubectl -n onecloud delete pod default-glance-x)"); got != at.want || !strings.HasPrefix(m, "waiting for the pods of glance") {
			t.Errorf("after %s: %q", at.after, m)
		}
	}
	require.NoError(t, b.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance-x"}}))
	b.reconcile()
	if err := b.api.Get(t.Context(), cloudKey, &v1alpha1.OnecloudCluster{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the cloud is still there: %v", err)
	}
}

// A deletion with --cascade=orphan removes neither workloads nor data, whatever the deletion policy.
func TestDeletionThatOrphansLeavesEverything(t *testing.T) {
	b := leaving(t, func(cr *v1alpha1.OnecloudCluster) {
		cr.Finalizers, cr.Spec.DeletionPolicy = append(cr.Finalizers, metav1.FinalizerOrphanDependents), v1alpha1.Delete
	}, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "default-glance"}}, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-glance"}})
	b.reconcile()
	b.get(&appsv1.Deployment{}, "default-glance")
	b.get(&corev1.PersistentVolumeClaim{}, "default-glance")
	if left := b.cloud().Finalizers; !slices.Equal(left, []string{metav1.FinalizerOrphanDependents}) {
		t.Errorf("finalizers %q", left)
	}
}

// The pod of a backup Job is kept for ten minutes after its end. The deletion of the cloud does not wait for it.
func TestDeletionLeavesEndedPods(t *testing.T) {
	b := leaving(t, nil, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "default-backup-x", UID: "x"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}})
	b.reconcile()
	if err := b.api.Get(t.Context(), cloudKey, &v1alpha1.OnecloudCluster{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the cloud is still there: %v", err)
	}
}

// A database server that is gone blocks the deletion of a cloud with its data, with a message on how to give up; then the rest is deleted.
func TestDatabasesCanBeAbandoned(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-glance"}}
	b := leaving(t, func(cr *v1alpha1.OnecloudCluster) {
		cr.Spec.DeletionPolicy = v1alpha1.Delete
		cr.Status.Effects = map[string]string{"database/glance": "made"}
	}, claim)
	_, err := b.r.Reconcile(t.Context(), request())
	if err == nil || !strings.Contains(err.Error(), "annotate oc default "+v1alpha1.AnnotationAbandon+"=databases") {
		t.Fatalf("the way out is not reported: %v", err)
	}
	degraded := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionDegraded)
	if degraded == nil || !strings.Contains(degraded.Message, v1alpha1.AnnotationAbandon) || strings.Contains(degraded.Message, "admin-secret") {
		t.Fatalf("the condition says %+v", degraded)
	}
	b.get(&corev1.PersistentVolumeClaim{}, claim.Name)
	cr := b.cloud()
	cr.Annotations = map[string]string{v1alpha1.AnnotationAbandon: "databases"}
	require.NoError(t, b.api.Update(t.Context(), cr))
	b.reconcile()
	for name, o := range map[string]client.Object{cloudKey.Name: &v1alpha1.OnecloudCluster{}, claim.Name: &corev1.PersistentVolumeClaim{}} {
		if err := b.api.Get(t.Context(), client.ObjectKey{Namespace: "onecloud", Name: name}, o); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%T %s is still there: %v", o, name, err)
		}
	}
}

// A cache that still has a completely deleted cloud must not cause its data to be removed again: a new cloud may have the same names.
func TestDeletionIsCompletedOnce(t *testing.T) {
	var stale *v1alpha1.OnecloudCluster
	patches := 0
	cr := newCloud()
	cr.Finalizers, cr.DeletionTimestamp = []string{v1alpha1.Finalizer}, &metav1.Time{Time: b0}
	b := newBench(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if into, is := o.(*v1alpha1.OnecloudCluster); is && stale != nil {
				stale.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			patches++
			return c.Patch(ctx, o, patch, opts...)
		},
	}, cr)
	before := b.cloud()
	b.reconcile()
	if patches != 1 {
		t.Fatalf("released with %d patches", patches)
	}
	stale = before
	b.reconcile()
	if patches != 1 {
		t.Error("a cloud that is gone was released again")
	}
}

// The volume with the backups outlives a cloud that is deleted with its data, unless its deletion is requested as well.
func TestBackupsOutliveTheirCloud(t *testing.T) {
	for _, asked := range []bool{false, true} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-backup"}}
		other := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "default-glance"}}
		b := leaving(t, func(cr *v1alpha1.OnecloudCluster) {
			cr.Spec.DeletionPolicy = v1alpha1.Delete
			cr.Annotations = map[string]string{v1alpha1.AnnotationAbandon: "databases"}
			if asked {
				cr.Annotations[v1alpha1.AnnotationDeleteBackups] = "true"
			}
		}, claim, other)
		b.get(claim, claim.Name)
		claim.Labels[v1alpha1.LabelComponent] = "backup"
		require.NoError(t, b.api.Update(t.Context(), claim))
		b.reconcile()
		if err := b.api.Get(t.Context(), cloudKey, &v1alpha1.OnecloudCluster{}); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the cloud is still there: %v", err)
		}
		if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(other), other); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("another claim is still there: %v", err)
		}
		err := b.api.Get(t.Context(), client.ObjectKeyFromObject(claim), claim)
		if kept := err == nil; kept == asked {
			t.Errorf("asked to delete the backups: %v; they are kept: %v", asked, kept)
		}
	}
}

// The pods of a cloud taken over from an older operator have a random label, which only workloads show. The last pods are waited for without them: they
// may still write to the databases.
func TestDeletionWaitsForPodsWithAnEarlierLabel(t *testing.T) {
	cr := newCloud()
	cr.Finalizers, cr.DeletionTimestamp = []string{v1alpha1.Finalizer}, &metav1.Time{Time: b0}
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: "onecloud-cluster-x7k2p", v1alpha1.LabelComponent: "keystone"}
	of := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: cr.Namespace, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cr, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))}}
	}
	pod := &corev1.Pod{ObjectMeta: of("default-keystone-7d9f-x2x4z")}
	pod.OwnerReferences = nil
	b := newBench(t, interceptor.Funcs{}, cr, pod, &corev1.Service{ObjectMeta: of("default-keystone")}, &appsv1.Deployment{ObjectMeta: of("default-keystone"),
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}})
	for range 2 { // the first deletes the Deployment
		b.reconcile()
		if m := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionReady).Message; !strings.HasPrefix(m, "waiting for the pods of keystone") {
			t.Errorf("%q", m)
		}
	}
}

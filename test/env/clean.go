// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/require"
)

// Kinds returns the kinds of objects of a cloud.
func Kinds() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &corev1.PersistentVolumeClaim{}, &appsv1.Deployment{}, &appsv1.StatefulSet{},
		&appsv1.DaemonSet{}, &batchv1.CronJob{}, &networkingv1.Ingress{}, &policyv1.PodDisruptionBudget{},
	}
}

// Clean removes every cloud and its remains in the cluster and on the shared database server. No operator may be running.
func (e *Env) Clean() {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), Patience)
	defer cancel()
	if e.Services != nil {
		e.Services.Close()
	}
	namespaces := map[string]bool{e.Namespace: true}
	for _, kind := range []client.Object{&v1alpha1.OnecloudCluster{}, &v1alpha1.OnecloudMachine{}, &v1alpha1.OnecloudOperation{}} {
		for _, o := range e.At(metav1.NamespaceAll).list(ctx, kind) {
			namespaces[o.GetNamespace()] = true
			e.check(e.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
			e.check(e.Client.Delete(ctx, o))
		}
	}
	// Pods are deleted with the claims that they use: without a kubelet nothing ends a pod, and a claim in use is not deleted.
	for namespace := range namespaces {
		e.At(namespace).remove(ctx, append(Kinds(), &appsv1.ReplicaSet{}, &corev1.Pod{}), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy})
	}
	e.check(e.DB.Wipe(ctx))
}

// restore removes everything that an earlier test left, and reverts its changes to the operator's own objects.
func (e *Env) restore() {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), Patience)
	defer cancel()
	e.Clean()
	e.check(e.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}))
	e.remove(ctx, append(Kinds(), &appsv1.ReplicaSet{}, &corev1.Pod{}, &batchv1.Job{}, &corev1.ResourceQuota{}, &eventsv1.Event{}, &coordinationv1.Lease{}))
	e.check((&plane{cluster: e.Cluster, client: e.Client}).define(ctx))
}

// remove deletes objects and waits until their finalizers are gone.
func (e *Env) remove(ctx context.Context, kinds []client.Object, which ...client.DeleteAllOfOption) {
	e.Helper()
	list := lists.Map(which, func(w client.DeleteAllOfOption) client.ListOption { return w.(client.ListOption) })
	which = append(which, client.InNamespace(e.Namespace), client.GracePeriodSeconds(0))
	for {
		for _, kind := range kinds { // again in each round: an operator that has ended may still have been writing an event
			e.check(e.Client.DeleteAllOf(ctx, kind, which...))
		}
		left := e.left(ctx, kinds, list)
		if len(left) == 0 {
			return
		}
		if wait.Sleep(ctx, 100*time.Millisecond) != nil {
			e.Fatalf("an earlier test has left %q", left)
		}
	}
}

func (e *Env) check(err error) {
	e.Helper()
	e.Must(client.IgnoreNotFound(err))
}

// Must fails the test if err is not nil.
func (e *Env) Must(err error) {
	e.Helper()
	require.NoError(e, err)
}

// left returns the names of the objects of some kinds, except those that Kubernetes creates in every namespace.
func (e *Env) left(ctx context.Context, kinds []client.Object, which []client.ListOption) []string {
	var names []string
	for _, kind := range kinds {
		for _, o := range e.list(ctx, kind, which...) {
			if o.GetName() != "kube-root-ca.crt" {
				names = append(names, e.Kind(o)+"/"+o.GetName())
			}
		}
	}
	slices.Sort(names)
	return names
}

func (e *Env) list(ctx context.Context, kind client.Object, options ...client.ListOption) []client.Object {
	e.Helper()
	gvk, err := e.Client.GroupVersionKindFor(kind)
	e.Must(err)
	list, err := e.Client.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	e.Must(err)
	e.Must(e.Client.List(ctx, list.(client.ObjectList), append(options, client.InNamespace(e.Namespace))...))
	var all []client.Object
	require.NoError(e, meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, o.(client.Object))
		return nil
	}))
	return all
}

// Objects returns the cloud's objects of some kinds, or of all kinds if none is given.
func (e *Env) Objects(kinds ...client.Object) []client.Object {
	e.Helper()
	if kinds == nil {
		kinds = Kinds()
	}
	return slices.Concat(lists.Map(kinds, func(kind client.Object) []client.Object {
		return e.list(e.Context(), kind, client.MatchingLabels{v1alpha1.LabelInstance: v1alpha1.InstancePrefix + Name})
	})...)
}

// Kind returns the kind of an object, or of the items of a list.
func (e *Env) Kind(o runtime.Object) string {
	gvk, err := e.Client.GroupVersionKindFor(o)
	e.Must(err)
	return strings.TrimSuffix(gvk.Kind, "List")
}

// Eventually waits for a condition that no watch reports. It checks twenty times a second.
func (e *Env) Eventually(holds func() (bool, string)) {
	e.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		ok, why := holds()
		if ok {
			return
		}
		if err := e.Context().Err(); err != nil || time.Now().After(deadline) {
			e.Fatal(fmt.Sprint("waited in vain: ", why))
		}
	}
}

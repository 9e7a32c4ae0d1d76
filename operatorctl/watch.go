// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/status"
)

// concurrent clouds; each pass is itself parallel inside.
const concurrent = 4

// setup wires the reconciler into the manager.
func setup(mgr ctrl.Manager, o Options) error {
	r, err := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(engine.FieldManager), o)
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	// Our own writes to status must not bring the next pass: they would be a loop.
	wanted := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{},
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectNew.GetDeletionTimestamp() != nil && len(e.ObjectNew.GetFinalizers()) != len(e.ObjectOld.GetFinalizers())
		}})
	b := ctrl.NewControllerManagedBy(mgr).Named("onecloudcluster").
		For(&v1alpha1.OnecloudCluster{}, builder.WithPredicates(wanted)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, SkipNameValidation: new(true), RateLimiter: retries()}) // one after another may live in a process
	for _, k := range render.Kinds() {
		b = b.Watches(k, r.toCloud())
	}
	b = b.Watches(&corev1.Pod{}, r.toCloud(), builder.WithPredicates(predicate.Funcs{UpdateFunc: podTellsMore}))
	if !o.WithoutNodes {
		b = b.Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.everyCloud), builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeTellsMore}))
	}
	b = b.WatchesRawSource(source.Channel(r.woken, &handler.EnqueueRequestForObject{}))
	if err := errors.Join(b.Complete(r), mgr.Add(manager.RunnableFunc(r.giveBack)), mgr.Add(manager.RunnableFunc(r.keys.fill))); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	return nil
}

// A pass that ended with an error is made again after firstRetry, then after twice as long each time, at most lastRetry: what concerns a
// whole cloud, such as a database that a deletion waits for, is over a moment after its cause is.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
}

// toCloud maps an object to the cloud its labels name, and makes the applier forget what was deleted.
func (r *Reconciler) toCloud() handler.EventHandler {
	add := func(o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		if name := r.cloudOf(o); name != "" {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	seen := func(o client.Object) {
		if gvk, err := apiutil.GVKForObject(o, r.scheme); err == nil {
			r.applier.Seen(engine.Key{GVK: gvk, Namespace: o.GetNamespace(), Name: o.GetName()}, o.GetResourceVersion())
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			seen(e.Object)
			add(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			seen(e.ObjectNew)
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				add(e.ObjectOld, q) // its label may have been edited away; the queue holds each cloud once
				add(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if gvk, err := apiutil.GVKForObject(e.Object, r.scheme); err == nil {
				r.applier.Forget(engine.Key{GVK: gvk, Namespace: e.Object.GetNamespace(), Name: e.Object.GetName()})
			}
			add(e.Object, q)
		},
	}
}

// everyCloud is asked for by a node: any cloud may run there.
func (r *Reconciler) everyCloud(ctx context.Context, _ client.Object) []reconcile.Request {
	var all v1alpha1.OnecloudClusterList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		r.log.Warn("listing the clouds", "error", err)
		return nil
	}
	out := make([]reconcile.Request, 0, len(all.Items))
	for i := range all.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return out
}

// nodeTellsMore drops the heartbeats of nodes.
func nodeTellsMore(e event.UpdateEvent) bool {
	old, ok1 := e.ObjectOld.(*corev1.Node)
	now, ok2 := e.ObjectNew.(*corev1.Node)
	if !ok1 || !ok2 {
		return true
	}
	was, is := status.NodeOf(old), status.NodeOf(now)
	return was.Ready != is.Ready || was.Address != is.Address || !maps.Equal(was.Labels, is.Labels)
}

// podTellsMore drops the many pod updates that change nothing we report.
func podTellsMore(e event.UpdateEvent) bool {
	old, ok1 := e.ObjectOld.(*corev1.Pod)
	now, ok2 := e.ObjectNew.(*corev1.Pod)
	if !ok1 || !ok2 {
		return true
	}
	return old.Status.Phase != now.Status.Phase || !maps.Equal(reasons(old), reasons(now))
}

func reasons(p *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if c.RestartCount > 0 {
			out[c.Name+"#"] = strconv.Itoa(int(c.RestartCount))
		}
		switch {
		case c.State.Waiting != nil:
			out[c.Name] = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			out[c.Name] = c.State.Terminated.Reason
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			out["-"] = c.Reason + c.Message
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	machinectl "yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/nodecerts"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/status"
)

// concurrent clouds; each pass is itself parallel inside.
const concurrent = 4

// setup wires the reconciler into the manager.
func setup(ctx context.Context, mgr ctrl.Manager, o Options, current bool) error {
	cached := func(list client.ObjectList) error {
		select {
		case <-mgr.Elected():
			return mgr.GetClient().List(ctx, list, client.UnsafeDisableDeepCopy)
		default:
			return nil // the operator that leads shows them
		}
	}
	meters := newInstruments(func(all *v1alpha1.OnecloudClusterList) error { return cached(all) },
		func(all *v1alpha1.OnecloudOperationList) error {
			if o.WithoutOperations {
				return nil
			}
			return cached(all)
		}, func(namespace string) map[string]certreport.Report { return reportsIn(ctx, mgr, namespace) })
	r, err := reconcile.New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(engine.FieldManager), reconcile.Options{
		Components: o.Components, Image: o.Image, WithoutNodes: o.WithoutNodes, Operations: !o.WithoutOperations, AtOnce: o.AtOnce,
		SpecsChecked: current, Audit: o.Audit, Log: o.Log, Observer: meters,
		Connections: connectionsOf(o),
	})
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
		// The name is not checked: tests start one operator after another in a process.
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, SkipNameValidation: new(true), RateLimiter: retries()})
	for _, k := range render.Kinds() {
		b = b.Watches(k, toCloud(r))
	}
	b = b.Watches(&corev1.Pod{}, toCloud(r), builder.WithPredicates(predicate.Funcs{UpdateFunc: podChanged}))
	if !o.WithoutNodes {
		b = b.Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(everyCloud(mgr.GetClient(), o.Log)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged}))
	}
	b = b.Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(everyCloud(mgr.GetClient(), o.Log)),
		named(dbpair.StateName))
	if !o.WithoutOperations {
		b = b.Watches(&v1alpha1.OnecloudOperation{}, handler.EnqueueRequestsFromMapFunc(operated), builder.WithPredicates(predicate.Funcs{UpdateFunc: rolloutChanged}))
	}
	b = b.WatchesRawSource(source.Channel(r.Woken(), &handler.EnqueueRequestForObject{}))
	idle := manager.RunnableFunc(func(ctx context.Context) error { return releaseMemory(ctx, r) })
	if err := errors.Join(meters.register(), b.Complete(r), mgr.Add(idle)); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	if o.WithoutOperations {
		return nil
	}
	return operations(mgr, o)
}

// connectionsOf says how databases and services are reached.
func connectionsOf(o Options) effects.Options {
	return effects.Options{Dial: o.Dial, Transport: o.Transport, OnStatement: o.OnStatement}
}

// operated is the cloud of an operation, or the cloud itself.
func operated(_ context.Context, object client.Object) []ctrl.Request {
	key := client.ObjectKeyFromObject(object)
	if one, ok := object.(*v1alpha1.OnecloudOperation); ok {
		key.Name = one.Spec.Cloud
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// worked is the cloud of the operation that a Job or a pod works on.
func worked(_ context.Context, object client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetLabels()[v1alpha1.LabelOperationCloud]}}}
}

// rolloutChanged drops what of an operation does not concern its cloud.
func rolloutChanged(e event.UpdateEvent) bool {
	old, ok1 := e.ObjectOld.(*v1alpha1.OnecloudOperation)
	now, ok2 := e.ObjectNew.(*v1alpha1.OnecloudOperation)
	if ok1 && ok2 && now.MachineName() != "" {
		return false
	}
	removed := func(o *v1alpha1.OnecloudOperation) int {
		if o.Status.Databases == nil {
			return 0
		}
		return len(o.Status.Databases.Removed)
	}
	return !ok1 || !ok2 || removed(old) != removed(now) || old.Status.Phase.Active() != now.Status.Phase.Active() ||
		!equality.Semantic.DeepEqual(old.Status.Rollout, now.Status.Rollout) || (old.Status.Phase == v1alpha1.OperationReverting) != (now.Status.Phase == v1alpha1.OperationReverting)
}

// jobImage is the image of Jobs, "" where there can be none.
func jobImage(o Options) string {
	if o.WithoutJobs {
		return ""
	}
	return o.Image
}

// operations wires the controller of operations into the manager.
func operations(mgr ctrl.Manager, o Options) error {
	components := o.Components
	if components == nil {
		components = catalog.All()
	}
	actions := append(operation.Actions(components), nodecerts.Action(jobImage(o)))
	if err := nodeCertificates(mgr, o); err != nil {
		return err
	}
	if !o.WithoutMachines {
		m := machinectl.Options{Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(engine.FieldManager), Image: jobImage(o), Log: o.Log}
		actions = append(actions, machinectl.Actions(m)...)
		if err := machines(mgr, m); err != nil {
			return err
		}
	}
	pods, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("setting up the controller of operations: %w", err)
	}
	c := operation.New(operation.Options{
		JobImage: jobImage(o), WithoutJobs: o.WithoutJobs,
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(engine.FieldManager),
		Settle: o.Settle, Silence: o.Silence, AtOnce: o.AtOnce, MachinesAtOnce: o.MachinesAtOnce, Actions: actions, Connections: connectionsOf(o), Log: o.Log, Means: operation.Means{
			Pods: pods, Preview: func(ctx context.Context, cr *v1alpha1.OnecloudCluster) (reconcile.Preview, error) {
				return reconcile.PreviewOf(ctx, mgr.GetClient(), mgr.GetAPIReader(), reconcile.Options{
					Components: o.Components, Image: o.Image, WithoutNodes: o.WithoutNodes,
				}, cr)
			},
		},
	})
	cloudOf := handler.EnqueueRequestsFromMapFunc(operated)
	b := ctrl.NewControllerManagedBy(mgr).Named("onecloudoperation").
		Watches(&v1alpha1.OnecloudOperation{}, cloudOf).
		Watches(&v1alpha1.OnecloudCluster{}, cloudOf)
	if !o.WithoutJobs {
		ofWork := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[v1alpha1.LabelOperation] != "" }))
		b = b.Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(worked), ofWork).Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(worked), ofWork)
	}
	err = b.WatchesRawSource(source.Channel(c.Woken(), cloudOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, SkipNameValidation: new(true), RateLimiter: retries()}).
		Complete(c)
	if err := errors.Join(err, mgr.Add(c)); err != nil {
		return fmt.Errorf("setting up the controller of operations: %w", err)
	}
	return nil
}

// A pass that ended with an error is made again after firstRetry, then after twice as long each time, at most lastRetry: what concerns a
// whole cloud, such as a database that a deletion waits for, is over a moment after its cause is.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func retries() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry)
}

// toCloud maps an object to the cloud its labels name, and makes the applier forget what was deleted.
func toCloud(r *reconcile.Reconciler) handler.EventHandler {
	add := func(o client.Object, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		if name := r.CloudOf(o); name != "" {
			q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			add(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				add(e.ObjectOld, q) // its label may have been edited away; the queue holds each cloud once
				add(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.Deleted(e.Object)
			add(e.Object, q)
		},
	}
}

// named drops the objects with other names.
func named(name string) builder.Predicates {
	return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name }))
}

// everyCloud returns all clouds: any of them may run on a node.
func everyCloud(c client.Reader, log *slog.Logger) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []ctrl.Request {
		var all v1alpha1.OnecloudClusterList
		if err := c.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			log.Warn("listing the clouds", "error", err)
			return nil
		}
		out := make([]ctrl.Request, 0, len(all.Items))
		for i := range all.Items {
			out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
		return out
	}
}

// nodeChanged drops the heartbeats of nodes.
func nodeChanged(e event.UpdateEvent) bool {
	old, ok1 := e.ObjectOld.(*corev1.Node)
	now, ok2 := e.ObjectNew.(*corev1.Node)
	if !ok1 || !ok2 {
		return true
	}
	was, is := status.NodeOf(old), status.NodeOf(now)
	return was.Ready != is.Ready || was.Address != is.Address || !maps.Equal(was.Labels, is.Labels)
}

// podChanged drops the many pod updates that change nothing we report.
func podChanged(e event.UpdateEvent) bool {
	old, ok1 := e.ObjectOld.(*corev1.Pod)
	now, ok2 := e.ObjectNew.(*corev1.Pod)
	if !ok1 || !ok2 {
		return true
	}
	return old.Status.Phase != now.Status.Phase || !maps.Equal(podReasons(old), podReasons(now))
}

func podReasons(p *corev1.Pod) map[string]string {
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

// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/render"
)

// setup wires the reconciler into the manager.
func setup(ctx context.Context, mgr ctrl.Manager, o Options, current bool) error {
	meters := newInstruments(func(list client.ObjectList) error {
		select {
		case <-mgr.Elected():
			return mgr.GetClient().List(ctx, list, client.UnsafeDisableDeepCopy)
		default:
			return nil // the operator that leads shows them
		}
	}, !o.without.operations, func(namespace string) map[string]certreport.Report { return reportsIn(ctx, mgr, namespace) })
	r, err := reconcile.New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(engine.FieldManager), reconcile.Options{
		Components: o.Components, Image: o.Image, WithoutNodes: o.without.nodes, Operations: !o.without.operations, AtOnce: o.Operations.AtOnce,
		SpecsChecked: current, Audit: o.Audit, Log: o.Log, Observer: meters,
		Connections: o.Options,
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
		WithOptions(options())
	for _, k := range render.Kinds() {
		b = b.Watches(k, toCloud(r))
	}
	b = b.Watches(&corev1.Pod{}, toCloud(r), updates(podChanged))
	every := handler.EnqueueRequestsFromMapFunc(everyCloud(mgr.GetClient(), o.Log))
	if !o.without.nodes {
		b = b.Watches(&corev1.Node{}, every, updates(nodeChanged))
	}
	b = b.Watches(&corev1.ConfigMap{}, every, named(dbpair.StateName))
	if !o.without.operations {
		b = b.Watches(&v1alpha1.OnecloudOperation{}, handler.EnqueueRequestsFromMapFunc(operated), updates(rolloutChanged))
	}
	b = b.WatchesRawSource(source.Channel(r.Woken(), &handler.EnqueueRequestForObject{}))
	idle := manager.RunnableFunc(func(ctx context.Context) error { return releaseMemory(ctx, r) })
	if err := errors.Join(meters.register(), b.Complete(r), mgr.Add(idle)); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	if o.without.operations {
		return nil
	}
	return operations(mgr, o)
}

// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/operatorctl/nodecerts"
)

// nodeCertificates wires the controller of the certificates of control-plane nodes into the manager, where there can be Jobs for it.
func nodeCertificates(mgr ctrl.Manager, o Options) error {
	if jobImage(o) == "" || o.WithoutNodes {
		return nil
	}
	k := &nodecerts.Keeper{Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Image: jobImage(o), Log: o.Log}
	every := handler.EnqueueRequestsFromMapFunc(everyCloud(mgr.GetClient(), o.Log))
	err := ctrl.NewControllerManagedBy(mgr).Named("onecloudnodecertificates").
		For(&v1alpha1.OnecloudCluster{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: beganToGo})).
		Watches(&corev1.ConfigMap{}, every, named(certreport.ConfigMap)).
		Watches(&corev1.Node{}, every, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&v1alpha1.OnecloudOperation{}, handler.EnqueueRequestsFromMapFunc(operated), builder.WithPredicates(predicate.NewPredicateFuncs(renewsCertificates))).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(looked), builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			return object.GetLabels()[nodecerts.LabelCloud] != ""
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, SkipNameValidation: new(true), RateLimiter: retries()}).
		Complete(k)
	if err != nil {
		return fmt.Errorf("setting up the controller of node certificates: %w", err)
	}
	return nil
}

// reportsIn are the reports in a namespace, of the operator that leads.
func reportsIn(ctx context.Context, mgr ctrl.Manager, namespace string) map[string]certreport.Report {
	select {
	case <-mgr.Elected():
	default:
		return nil
	}
	cm := &corev1.ConfigMap{}
	if err := mgr.GetClient().Get(ctx, client.ObjectKey{Namespace: namespace, Name: certreport.ConfigMap}, cm); err != nil {
		return nil // there is none, or the cache is not ready
	}
	return certreport.All(cm.Data)
}

// looked is the cloud for which a Job looks at certificates.
func looked(_ context.Context, object client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetLabels()[nodecerts.LabelCloud]}}}
}

func renewsCertificates(object client.Object) bool {
	o, ok := object.(*v1alpha1.OnecloudOperation)
	return ok && o.Spec.Action == v1alpha1.ActionRenewCertificates
}

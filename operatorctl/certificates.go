// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/operatorctl/nodecerts"
)

// nodeCertificates wires the controller of the certificates of control-plane nodes into the manager, where there can be Jobs for it.
func nodeCertificates(mgr ctrl.Manager, o Options) error {
	if jobImage(o) == "" || o.without.nodes {
		return nil
	}
	k := &nodecerts.Keeper{Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Image: jobImage(o), Log: o.Log}
	every := handler.EnqueueRequestsFromMapFunc(everyCloud(mgr.GetClient(), o.Log))
	err := ctrl.NewControllerManagedBy(mgr).Named("onecloudnodecertificates").
		For(&v1alpha1.OnecloudCluster{}, updates(beganToGo)).
		Watches(&corev1.ConfigMap{}, every, named(certreport.ConfigMap)).
		Watches(&corev1.Node{}, every, updates(nodeChanged)).
		Watches(&v1alpha1.OnecloudOperation{}, handler.EnqueueRequestsFromMapFunc(operated), only(renewsCertificates)).
		Watches(&batchv1.Job{}, labelled(nodecerts.LabelCloud), only(func(o client.Object) bool { return o.GetLabels()[nodecerts.LabelCloud] != "" })).
		WithOptions(options()).
		Complete(k)
	if err != nil {
		return fmt.Errorf("setting up the controller of node certificates: %w", err)
	}
	return nil
}

// reportsIn are the reports in a namespace.
func reportsIn(ctx context.Context, mgr ctrl.Manager, namespace string) map[string]certreport.Report {
	cm := &corev1.ConfigMap{}
	if err := mgr.GetClient().Get(ctx, client.ObjectKey{Namespace: namespace, Name: certreport.ConfigMap}, cm); err != nil {
		return nil // there is none, or the cache is not ready
	}
	return certreport.All(cm.Data)
}

func renewsCertificates(object client.Object) bool {
	o, ok := object.(*v1alpha1.OnecloudOperation)
	return ok && o.Spec.Action == v1alpha1.ActionRenewCertificates
}

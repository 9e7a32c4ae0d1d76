// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/engine"
	machinectl "yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/nodecerts"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/reconcile"
)

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
	if !o.without.machines {
		m := machinectl.Options{
			Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(engine.FieldManager), Image: jobImage(o), Log: o.Log,
			Authority: machinectl.Authority(mgr.GetConfig()),
		}
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
		JobImage: jobImage(o), WithoutJobs: o.without.jobs, Settings: o.Operations,
		Events: mgr.GetEventRecorder(engine.FieldManager), Actions: actions, Log: o.Log, Means: operation.Means{
			Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Connections: o.Options,
			Pods: pods, Preview: func(ctx context.Context, cr *v1alpha1.OnecloudCluster) (reconcile.Preview, error) {
				return reconcile.PreviewOf(ctx, mgr.GetClient(), mgr.GetAPIReader(), reconcile.Options{
					Components: o.Components, Image: o.Image, WithoutNodes: o.without.nodes,
				}, cr)
			},
		},
	})
	cloudOf := handler.EnqueueRequestsFromMapFunc(operated)
	b := ctrl.NewControllerManagedBy(mgr).Named("onecloudoperation").
		Watches(&v1alpha1.OnecloudOperation{}, cloudOf).
		Watches(&v1alpha1.OnecloudCluster{}, cloudOf)
	if !o.without.jobs {
		worked := labelled(v1alpha1.LabelOperationCloud)
		ofWork := only(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelOperation] != "" })
		b = b.Watches(&batchv1.Job{}, worked, ofWork).Watches(&corev1.Pod{}, worked, ofWork)
	}
	err = b.WatchesRawSource(source.Channel(c.Woken(), cloudOf)).
		WithOptions(options()).
		Complete(c)
	if err := errors.Join(err, mgr.Add(c)); err != nil {
		return fmt.Errorf("setting up the controller of operations: %w", err)
	}
	return nil
}

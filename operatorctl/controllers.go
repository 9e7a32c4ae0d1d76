// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/engine"
	machinectl "yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/nodecerts"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/render"
)

func setup(ctx context.Context, mgr ctrl.Manager, o Options, current bool) error {
	meters := newInstruments(func(list client.ObjectList) error {
		select {
		case <-mgr.Elected():
			return mgr.GetClient().List(ctx, list, client.UnsafeDisableDeepCopy)
		default:
			return nil // only the leader exports them
		}
	}, o.without, func(namespace string) map[string]certreport.Report { return reportsIn(ctx, mgr, namespace) })
	r, err := reconcile.New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(engine.FieldManager), reconcile.Options{
		Components: o.Components, Image: o.Image, WithoutNodes: o.without.nodes, Operations: !o.without.operations, AtOnce: o.Operations.AtOnce,
		SpecsChecked: current, Audit: o.Audit, Log: o.Log, Observer: meters,
		Connections: o.Options,
	})
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	// Our own status updates must not trigger another reconcile: that would be a loop.
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

// toCloud enqueues the cloud that the labels of an object name. It makes the applier forget deleted objects.
func toCloud(r *reconcile.Reconciler) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	add := func(o client.Object, q queue) {
		if name := r.CloudOf(o); name != "" {
			q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				add(e.ObjectOld, q) // the label may have been removed; the queue deduplicates
				add(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.Deleted(e.Object)
			add(e.Object, q)
		},
	}
}

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

// machines adds the two machine controllers to the manager.
func machines(mgr ctrl.Manager, o machinectl.Options) error {
	// which maps an object to the machines that it affects.
	which := func(concerns func(client.Object, *v1alpha1.OnecloudMachine) bool) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []ctrl.Request {
			var all v1alpha1.OnecloudMachineList
			if err := o.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
				o.Log.Warn("listing machines", "error", err)
				return nil
			}
			return lists.Pick(all.Items, func(m v1alpha1.OnecloudMachine) (ctrl.Request, bool) {
				return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&m)}, concerns(object, &m)
			})
		})
	}
	infrastructure := ctrl.NewControllerManagedBy(mgr).Named("onecloudmachine").For(&v1alpha1.OnecloudMachine{}).
		Watches(&v1alpha1.OnecloudMachine{}, which(twins), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.OnecloudCluster{}, which(ofCloud), updates(beganToGo)).
		Watches(&v1alpha1.OnecloudOperation{}, handler.EnqueueRequestsFromMapFunc(operatedMachine)).
		Watches(&corev1.Node{}, which(sameName), updates(machineNodeChanged)).
		Watches(&corev1.Pod{}, which(onNode), updates(readinessChanged)).
		Owns(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).WithOptions(options()).Complete(&machinectl.Infrastructure{Options: o})
	b := ctrl.NewControllerManagedBy(mgr).Named("onecloudmachine-bootstrap").For(&v1alpha1.OnecloudMachine{})
	if o.Image != "" {
		b = b.Watches(&batchv1.Job{}, which(sharedFor))
	}
	bootstrap := b.
		Watches(&v1alpha1.OnecloudCluster{}, which(ofCloud), updates(settingsChanged)).
		Owns(&corev1.Secret{}).WithOptions(options()).Complete(&machinectl.Bootstrap{Options: o})
	if err := errors.Join(infrastructure, bootstrap); err != nil {
		return fmt.Errorf("setting up the controllers of machines: %w", err)
	}
	return nil
}

func twins(object client.Object, m *v1alpha1.OnecloudMachine) bool {
	other, ok := object.(*v1alpha1.OnecloudMachine)
	return ok && other.UID != m.UID && (machinectl.SameAddress(other, m) || machinectl.SameName(other, m))
}

func ofCloud(object client.Object, m *v1alpha1.OnecloudMachine) bool {
	return object.GetNamespace() == m.Namespace && object.GetName() == m.Spec.Cloud
}

// sharedFor reports whether a Job stores the CAs of the cluster for a machine.
func sharedFor(object client.Object, m *v1alpha1.OnecloudMachine) bool {
	return m.ControlPlane() && object.GetNamespace() == m.Namespace && object.GetLabels()[machinectl.LabelAuthorities] == m.Spec.Cloud
}

func sameName(object client.Object, m *v1alpha1.OnecloudMachine) bool {
	return object.GetName() == m.Name
}

func onNode(object client.Object, m *v1alpha1.OnecloudMachine) bool {
	p, ok := object.(*corev1.Pod)
	return ok && m.Status.NodeRef != nil && p.Spec.NodeName == m.Status.NodeRef.Name
}

func operatedMachine(_ context.Context, object client.Object) []ctrl.Request {
	o, ok := object.(*v1alpha1.OnecloudOperation)
	if !ok || o.MachineName() == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: o.Namespace, Name: o.MachineName()}}}
}

// settingsChanged reports whether an update of a cloud affects the bootstrap data of its machines.
func settingsChanged(old, now *v1alpha1.OnecloudCluster) bool {
	return beganToGo(old, now) || !equality.Semantic.DeepEqual(old.Spec.Machines, now.Spec.Machines)
}

// machineNodeChanged reports whether an update of a Node affects its machine. A machine that left does, even if its Node was not Ready before.
func machineNodeChanged(old, now *corev1.Node) bool {
	return nodeChanged(old, now) || machinectl.Left(old) != machinectl.Left(now)
}

// readinessChanged reports whether an update of a pod affects its machine.
func readinessChanged(old, now *corev1.Pod) bool {
	ready := func(p *corev1.Pod) bool {
		return p.DeletionTimestamp == nil && kube.PodReady(p)
	}
	return ready(old) != ready(now) || old.Spec.NodeName != now.Spec.NodeName
}

// nodeCertificates adds the controller of control-plane certificates to the manager, if the operator can create Jobs and read nodes.
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

func reportsIn(ctx context.Context, mgr ctrl.Manager, namespace string) map[string]certreport.Report {
	cm := &corev1.ConfigMap{}
	if err := mgr.GetClient().Get(ctx, client.ObjectKey{Namespace: namespace, Name: certreport.ConfigMap}, cm); err != nil {
		return nil // not found, or the cache is not ready
	}
	return certreport.All(cm.Data)
}

func renewsCertificates(object client.Object) bool {
	o, ok := object.(*v1alpha1.OnecloudOperation)
	return ok && o.Spec.Action == v1alpha1.ActionRenewCertificates
}

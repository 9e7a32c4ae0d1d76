// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	machinectl "yunion.io/x/ocadm/operatorctl/machine"
)

// machines wires the two controllers of machines into the manager.
func machines(mgr ctrl.Manager, o machinectl.Options) error {
	// which maps an object to the machines that it concerns.
	which := func(concerns func(client.Object, *v1alpha1.OnecloudMachine) bool) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []ctrl.Request {
			var all v1alpha1.OnecloudMachineList
			if err := o.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
				o.Log.Warn("listing machines", "error", err)
				return nil
			}
			var out []ctrl.Request
			for i := range all.Items {
				if m := &all.Items[i]; concerns(object, m) {
					out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)})
				}
			}
			return out
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

// sharedFor reports whether a Job stores the authorities of the cluster for a machine.
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

// settingsChanged drops what of a cloud does not concern the bootstrap data of its machines.
func settingsChanged(old, now *v1alpha1.OnecloudCluster) bool {
	return beganToGo(old, now) || !equality.Semantic.DeepEqual(old.Spec.Machines, now.Spec.Machines)
}

// machineNodeChanged drops what of a Node does not concern its machine. That the machine has left concerns it, also when the Node was not Ready before.
func machineNodeChanged(old, now *corev1.Node) bool {
	return nodeChanged(old, now) || machinectl.Left(old) != machinectl.Left(now)
}

// readinessChanged drops what of a pod does not concern its machine.
func readinessChanged(old, now *corev1.Pod) bool {
	ready := func(p *corev1.Pod) bool {
		return p.DeletionTimestamp == nil && kube.PodReady(p)
	}
	return ready(old) != ready(now) || old.Spec.NodeName != now.Spec.NodeName
}

// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/status"
)

// concurrent is the number of clouds reconciled in parallel. Each reconcile is itself parallel.
const concurrent = 4

// A failed reconcile is retried with exponential backoff from firstRetry to lastRetry. lastRetry is short: what affects a whole cloud, such as a
// database that a deletion waits for, should recover soon after its cause is fixed.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// options returns the options of each controller. Names are not validated: tests start several operators in one process.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrent, SkipNameValidation: new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry),
	}
}

// everyCloud maps an object to all clouds: any of them may run on a node.
func everyCloud(c client.Reader, log *slog.Logger) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []ctrl.Request {
		var all v1alpha1.OnecloudClusterList
		if err := c.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			log.Warn("listing the clouds", "error", err)
			return nil
		}
		return lists.Map(all.Items, func(c v1alpha1.OnecloudCluster) ctrl.Request {
			return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&c)}
		})
	}
}

// labelled maps an object to the cloud that a label names.
func labelled(label string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetLabels()[label]}}}
	})
}

// operated maps an operation to its cloud, and a cloud to itself.
func operated(_ context.Context, object client.Object) []ctrl.Request {
	key := client.ObjectKeyFromObject(object)
	if one, ok := object.(*v1alpha1.OnecloudOperation); ok {
		key.Name = one.Spec.Cloud
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// only drops all objects that do not pass the test.
func only(those func(client.Object) bool) builder.Predicates {
	return builder.WithPredicates(predicate.NewPredicateFuncs(those))
}

// named drops objects with other names.
func named(name string) builder.Predicates {
	return only(func(o client.Object) bool { return o.GetName() == name })
}

// updates drops the updates of a T for which concern returns false.
func updates[T client.Object](concern func(old, now T) bool) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok1 := e.ObjectOld.(T)
		now, ok2 := e.ObjectNew.(T)
		return !ok1 || !ok2 || concern(old, now)
	}})
}

// beganToGo reports whether a cloud began to be deleted, or was replaced.
func beganToGo(old, now *v1alpha1.OnecloudCluster) bool {
	return old.UID != now.UID || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil)
}

// rolloutChanged reports whether an update of an operation affects its cloud.
func rolloutChanged(old, now *v1alpha1.OnecloudOperation) bool {
	if now.MachineName() != "" {
		return false
	}
	removed := func(o *v1alpha1.OnecloudOperation) int {
		if o.Status.Databases == nil {
			return 0
		}
		return len(o.Status.Databases.Removed)
	}
	return removed(old) != removed(now) || old.Status.Phase.Active() != now.Status.Phase.Active() ||
		!equality.Semantic.DeepEqual(old.Status.Rollout, now.Status.Rollout) || (old.Status.Phase == v1alpha1.OperationReverting) != (now.Status.Phase == v1alpha1.OperationReverting)
}

// nodeChanged ignores the heartbeats of nodes.
func nodeChanged(old, now *corev1.Node) bool {
	was, is := status.NodeOf(old), status.NodeOf(now)
	return was.Ready != is.Ready || was.Address != is.Address || !maps.Equal(was.Labels, is.Labels)
}

// podChanged ignores the many pod updates that change nothing we report.
func podChanged(old, now *corev1.Pod) bool {
	// A pod on a lost node keeps its phase when it is deleted, and blocks the rollout of its DaemonSet from then on.
	at := time.Now()
	return old.Status.Phase != now.Status.Phase || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) || !maps.Equal(podReasons(old), podReasons(now)) ||
		status.Trouble(*old, at) != status.Trouble(*now, at)
}

func podReasons(p *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
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

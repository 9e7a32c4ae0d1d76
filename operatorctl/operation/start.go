// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// AnnotationStopped on a Deployment holds how many replicas it had when its cloud was stopped. On a DaemonSet it means that LabelNoNode was added to its
// selector.
const AnnotationStopped = "onecloud.yunion.io/stopped-replicas"

// Start lets the operator restart the services that ocadm cluster stop, a restore or a move has stopped. An earlier pause of the cloud is restored;
// services that the operator then leaves alone are started here, with the replicas they had.
func Start(ctx context.Context, c client.Client, key client.ObjectKey, owner client.FieldOwner) error {
	cloud := &v1alpha1.OnecloudCluster{}
	if err := c.Get(ctx, key, cloud); err != nil {
		return fmt.Errorf("starting cloud %s: %w", key, err)
	}
	paused := cloud.Annotations[v1alpha1.AnnotationPaused]
	if paused == "true" {
		paused = cloud.Annotations[v1alpha1.AnnotationPausedBefore]
	}
	if paused != "" { // first: unpause removes what says how the cloud was
		if err := startWorkloads(ctx, c, key, owner, true); err != nil {
			return err
		}
	}
	if err := unpause(ctx, c, cloud, owner, paused); err != nil {
		return fmt.Errorf("starting cloud %s: %w", key, err)
	}
	if paused != "" {
		return nil
	}
	return startWorkloads(ctx, c, key, owner, false)
}

// StartAgain starts the services that an operation stopped, and reports whether it did. A cloud that was already stopped stays stopped.
func StartAgain(ctx context.Context, c client.Client, key client.ObjectKey, owner client.FieldOwner, operation string) (bool, error) {
	cloud := &v1alpha1.OnecloudCluster{}
	if err := c.Get(ctx, key, cloud); err != nil {
		return false, fmt.Errorf("starting cloud %s: %w", key, err)
	}
	mine := cloud.Annotations[v1alpha1.AnnotationStoppedBy] == operation
	if _, known := cloud.Annotations[v1alpha1.AnnotationPausedBefore]; !known { // a start was interrupted, or an earlier ocadm stopped the cloud
		var err error
		if mine, err = Stopped(ctx, c, key); err != nil {
			return false, err
		}
	}
	if !mine {
		return false, nil
	}
	return true, Start(ctx, c, key, owner)
}

// Stopped reports whether a workload of a cloud is annotated as stopped.
func Stopped(ctx context.Context, c client.Reader, key client.ObjectKey) (bool, error) {
	list, err := Services(ctx, c, key)
	if err != nil {
		return false, err
	}
	agents, err := Writers(ctx, c, key)
	return slices.ContainsFunc(list, func(d appsv1.Deployment) bool { return d.Annotations[AnnotationStopped] != "" }) ||
		slices.ContainsFunc(agents, func(d appsv1.DaemonSet) bool { return d.Annotations[AnnotationStopped] != "" }), err
}

// unpause restores the pause that a cloud had before it was stopped.
func unpause(ctx context.Context, c client.Client, cloud *v1alpha1.OnecloudCluster, owner client.FieldOwner, paused string) error {
	annotations := map[string]any{}
	for _, name := range []string{v1alpha1.AnnotationPaused, v1alpha1.AnnotationPausedBefore, v1alpha1.AnnotationStoppedBy} {
		if _, there := cloud.Annotations[name]; there {
			annotations[name] = nil
		}
	}
	if len(annotations) == 0 {
		return nil
	}
	if paused != "" {
		annotations[v1alpha1.AnnotationPaused] = paused
	}
	return kube.Merge(ctx, c, cloud, owner, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// startWorkloads undoes the stop of workloads. all restores the replicas of each Deployment; otherwise the operator does, where it sets their number.
func startWorkloads(ctx context.Context, c client.Client, key client.ObjectKey, owner client.FieldOwner, all bool) error {
	list, err := Services(ctx, c, key)
	if err != nil {
		return err
	}
	for i := range list {
		d := &list[i]
		n, err := strconv.Atoi(d.Annotations[AnnotationStopped])
		if err != nil {
			continue
		}
		var spec map[string]any
		if (all || engine.ScaledBy(d) != "") && ptr.Deref(d.Spec.Replicas, 1) == 0 { // the operator leaves the number to the autoscaler, which ignores 0 replicas
			spec = map[string]any{"replicas": n}
		}
		if err := change(ctx, c, d, owner, AnnotationStopped, spec); err != nil {
			return fmt.Errorf("starting Deployment %s: %w", d.Name, err)
		}
	}
	agents, err := Writers(ctx, c, key)
	if err != nil {
		return err
	}
	for i := range agents {
		d := &agents[i]
		if d.Annotations[AnnotationStopped] == "" {
			continue
		}
		spec := map[string]any{"template": map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{v1alpha1.LabelNoNode: nil}}}}
		if err := change(ctx, c, d, owner, AnnotationStopped, spec); err != nil {
			return fmt.Errorf("starting DaemonSet %s: %w", d.Name, err)
		}
	}
	return nil
}

// change removes an annotation, and merges fields into the spec.
func change(ctx context.Context, c client.Client, o client.Object, owner client.FieldOwner, without string, spec map[string]any) error {
	fields := map[string]any{"metadata": map[string]any{"annotations": map[string]any{without: nil}}}
	if spec != nil {
		fields["spec"] = spec
	}
	return kube.Merge(ctx, c, o, owner, fields)
}

// Services returns the Deployments of a cloud.
func Services(ctx context.Context, c client.Reader, key client.ObjectKey) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}); err != nil {
		return nil, fmt.Errorf("listing the services of cloud %s: %w", key, err)
	}
	return slices.DeleteFunc(list.Items, func(d appsv1.Deployment) bool { return !of(key, &d) }), nil
}

func agents(ctx context.Context, c client.Reader, key client.ObjectKey) ([]appsv1.DaemonSet, error) {
	var list appsv1.DaemonSetList
	if err := c.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}); err != nil {
		return nil, fmt.Errorf("listing the agents of cloud %s: %w", key, err)
	}
	return slices.DeleteFunc(list.Items, func(d appsv1.DaemonSet) bool { return !of(key, &d) }), nil
}

// Writers returns the DaemonSets of a cloud whose pods have a database of their own. The others reach databases only through services.
func Writers(ctx context.Context, c client.Reader, key client.ObjectKey) ([]appsv1.DaemonSet, error) {
	list, err := agents(ctx, c, key)
	all := catalog.All()
	return lists.Filter(list, func(d appsv1.DaemonSet) bool {
		return slices.ContainsFunc(all, func(c component.Component) bool { return c.Database != nil && d.Name == key.Name+"-"+c.Name })
	}), err
}

// of reports whether a workload belongs to a cloud.
func of(key client.ObjectKey, o client.Object) bool {
	owner := metav1.GetControllerOf(o)
	return owner != nil && owner.Kind == v1alpha1.Kind && owner.Name == key.Name && strings.HasPrefix(o.GetName(), key.Name+"-")
}

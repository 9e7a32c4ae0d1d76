// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// wanted is the operation that a user asks for by changing the cloud, nil if none: another spec.version, the annotation that brings a release to
// what the operator renders now, or the annotation that names an action. Its name follows from what was asked for, so that it is asked for once.
// It is pure.
func wanted(cloud *v1alpha1.OnecloudCluster, all []*v1alpha1.OnecloudOperation) *v1alpha1.OnecloudOperation {
	in := cloud.Status.Release
	if cloud.Status.Version == "" || in.Revision == 0 || in.Version == "" || cloud.DeletionTimestamp != nil {
		return nil // it has never run: there is nothing to move from
	}
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: cloud.Name, Requester: "the resource of the cloud"}}
	o.Namespace, o.Labels = cloud.Namespace, map[string]string{v1alpha1.LabelOperationCloud: cloud.Name}
	unfinished := slices.ContainsFunc(all, func(o *v1alpha1.OnecloudOperation) bool {
		return !o.Status.Phase.Final() && (o.Spec.Action == v1alpha1.ActionUpdate || o.Spec.Action == v1alpha1.ActionRollback)
	})
	switch action := cloud.Annotations[v1alpha1.AnnotationOperation]; {
	case action != "":
		o.Spec.Action = action
		o.Name = name(cloud.Name, action, cloud.ResourceVersion)
		if action == v1alpha1.ActionUpdate && cloud.Spec.Version != "" && cloud.Spec.Version != in.Version {
			o.Spec.Update = &v1alpha1.UpdateParameters{Version: cloud.Spec.Version}
		}
	case unfinished:
		return nil
	case cloud.Spec.Version != "" && cloud.Spec.Version != in.Version:
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: cloud.Spec.Version}
		o.Name = name(cloud.Name, o.Spec.Action, strconv.Itoa(in.Revision), cloud.Spec.Version)
	case cloud.Annotations[v1alpha1.AnnotationUpdateFrom] == strconv.Itoa(in.Revision):
		o.Spec.Action = v1alpha1.ActionUpdate
		o.Name = name(cloud.Name, o.Spec.Action, strconv.Itoa(in.Revision))
	default:
		return nil
	}
	if slices.ContainsFunc(all, func(other *v1alpha1.OnecloudOperation) bool { return other.Name == o.Name }) && cloud.Annotations[v1alpha1.AnnotationOperation] == "" {
		return nil
	}
	return o
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// name of an operation, of at most 60 characters that a name may have.
func name(parts ...string) string {
	full := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(strings.Join(parts, "-")), "-"), "-")
	return strings.Trim(full[:min(len(full), maxName)], "-")
}

const maxName = 60

// trigger creates the operation that a user asks for, and takes the annotation that asks for it away.
func (c *Controller) trigger(ctx context.Context, cloud *v1alpha1.OnecloudCluster, all []*v1alpha1.OnecloudOperation) error {
	o := wanted(cloud, all)
	if o == nil || !c.Waves && cloud.Annotations[v1alpha1.AnnotationOperation] == "" {
		return nil
	}
	err := c.Client.Create(ctx, o, client.FieldOwner(v1alpha1.ManagerOperator))
	switch {
	case apierrors.IsInvalid(err): // no such action
		c.Log.Warn("the annotation of a cloud asks for an operation that cannot be", "cluster", cloud.Name, "namespace", cloud.Namespace, "error", err)
	case err != nil && !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating operation %s: %w", o.Name, err)
	}
	if cloud.Annotations[v1alpha1.AnnotationOperation] == "" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": cloud.ResourceVersion, "annotations": map[string]any{v1alpha1.AnnotationOperation: nil},
	}})
	if err != nil {
		return err
	}
	err = c.Client.Patch(ctx, cloud.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.ManagerOperator))
	if apierrors.IsConflict(err) {
		return nil // the next reconcile has the later one
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/lists"
)

// workers is the number of concurrent requests.
const workers = 8

// Action is what an apply did, or would do, to an object.
type Action string

const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
	Deleted    Action = "deleted"
)

// Change describes what happened to one object.
type Change struct {
	Action    Action
	Kind      string
	Namespace string
	Name      string
}

// String returns, for example, "created Deployment onecloud/onecloud-operator".
func (c Change) String() string { return string(c.Action) + " " + c.object() }

// object returns, for example, "Deployment onecloud/onecloud-operator".
func (c Change) object() string {
	name := c.Name
	if c.Namespace != "" {
		name = c.Namespace + "/" + name
	}
	return c.Kind + " " + name
}

// Planned returns, for example, "create Deployment onecloud/onecloud-operator".
func (c Change) Planned() string {
	verb := map[Action]string{Created: "create", Configured: "configure", Unchanged: "keep", Deleted: "delete"}[c.Action]
	return strings.Replace(c.String(), string(c.Action), verb, 1)
}

// ChangeSet holds the changes of all objects, in the order given.
type ChangeSet []Change

// Changed returns the changes other than Unchanged.
func (s ChangeSet) Changed() ChangeSet {
	return lists.Filter(s, func(c Change) bool { return c.Action != Unchanged })
}

// Apply applies the objects by server-side apply: first Namespaces and custom resource definitions (waiting until the API server serves the latter),
// then everything else concurrently. It tries all objects of a stage and joins their errors. An object that is already as desired is not written: the
// API server drops an apply that changes nothing.
func Apply(ctx context.Context, c client.WithWatch, fieldManager string, objs ...*unstructured.Unstructured) (ChangeSet, error) {
	set := make(ChangeSet, len(objs))
	for _, early := range []bool{true, false} {
		err := each(objs, func(i int, o *unstructured.Unstructured) error {
			if isEarly(o) != early {
				return nil
			}
			var err error
			set[i], err = applyOne(ctx, c, fieldManager, o)
			return err
		})
		if err != nil {
			return set, err
		}
		if early {
			if err := established(ctx, c, objs); err != nil {
				return set, err
			}
		}
	}
	return set, nil
}

// Diff returns what Apply would do, using a dry run.
func Diff(ctx context.Context, c client.Client, fieldManager string, objs ...*unstructured.Unstructured) (ChangeSet, error) {
	set := make(ChangeSet, len(objs))
	err := each(objs, func(i int, o *unstructured.Unstructured) error {
		var err error
		set[i], err = applyOne(ctx, c, fieldManager, o, client.DryRunAll)
		return err
	})
	return set, err
}

// Conflicts returns the fields that Apply would take from another manager, one line each: "DaemonSet kube-flannel/kube-flannel-ds: .spec.replicas is
// set by kubectl". An object that does not exist has no conflicts.
func Conflicts(ctx context.Context, c client.Client, fieldManager string, objs ...*unstructured.Unstructured) ([]string, error) {
	found := make([][]string, len(objs))
	err := each(objs, func(i int, o *unstructured.Unstructured) error {
		//nolint:staticcheck // objects read from manifests have no typed apply configurations
		err := c.Patch(ctx, o.DeepCopy(), client.Apply, client.FieldOwner(fieldManager), client.DryRunAll)
		var status *apierrors.StatusError
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || !errors.As(err, &status) || status.ErrStatus.Details == nil:
			return fmt.Errorf("comparing %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
		}
		what := Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.object()
		for _, cause := range status.ErrStatus.Details.Causes {
			if other := manager(cause); other != "" && other != fieldManager {
				found[i] = append(found[i], fmt.Sprintf("%s: %s is set by %s", what, cause.Field, other))
			}
		}
		return nil
	})
	return slices.Concat(found...), err
}

// manager returns the manager in a conflict: the API server says `conflict with "kubectl-edit" using apps/v1`.
func manager(c metav1.StatusCause) string {
	if c.Type != metav1.CauseTypeFieldManagerConflict {
		return ""
	}
	_, rest, _ := strings.Cut(c.Message, `"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

func each(objs []*unstructured.Unstructured, f func(int, *unstructured.Unstructured) error) error {
	return errors.Join(lists.Parallel(objs, workers, f)...)
}

func isEarly(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1"
}

func applyOne(ctx context.Context, c client.Client, manager string, o *unstructured.Unstructured, opts ...client.PatchOption) (Change, error) {
	change := Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Action: Created}
	live, err := Live(ctx, c, o)
	if err != nil {
		return change, err
	}
	if live == nil && len(opts) > 0 { // a dry run cannot create an object whose namespace or definition does not exist yet
		return change, nil
	}
	sent := o.DeepCopy()
	opts = append(opts, client.FieldOwner(manager), client.ForceOwnership)
	//nolint:staticcheck // objects read from manifests have no typed apply configurations
	if err := c.Patch(ctx, sent, client.Apply, opts...); err != nil {
		return change, fmt.Errorf("applying %s %s: %w", change.Kind, client.ObjectKeyFromObject(o), err)
	}
	if live != nil {
		change.Action = Configured
		if same(manager, o, live, sent) {
			change.Action = Unchanged
		}
	}
	return change, nil
}

// Find reads an object that need not exist, and reports whether it does. what names the object in an error.
func Find(ctx context.Context, c client.Reader, key client.ObjectKey, o client.Object, what string) (found bool, err error) {
	err = c.Get(ctx, key, o)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %s: %w", what, err)
	}
	return err == nil, nil
}

// Live returns an object as it is in the cluster, nil if it, or its kind, does not exist.
func Live(ctx context.Context, c client.Reader, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(o), live)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
	}
	return live, nil
}

// same compares an object before and after an apply: the values of the fields sent, and which fields the manager owns. Others may have changed the
// rest in between: a controller updates its revision annotation, a status changes.
func same(manager string, sent, before, after *unstructured.Unstructured) bool {
	return owned(manager, before) == owned(manager, after) &&
		reflect.DeepEqual(project(sent.Object, before.Object), project(sent.Object, after.Object))
}

// owned returns the fields that the manager applied, as recorded by the API server.
func owned(manager string, o *unstructured.Unstructured) string {
	var fields []string
	for _, f := range o.GetManagedFields() {
		if f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationApply && f.FieldsV1 != nil {
			fields = append(fields, f.APIVersion+" "+f.Subresource+" "+f.FieldsV1.String())
		}
	}
	return strings.Join(fields, "\n")
}

// project returns the keys of v that are in the mask. Lists are kept whole: the API server matches their items by their own keys.
func project(mask, v any) any {
	keys, isMap := mask.(map[string]any)
	values, both := v.(map[string]any)
	if !isMap || !both {
		return v
	}
	out := map[string]any{}
	for k, m := range keys {
		if value, there := values[k]; there {
			out[k] = project(m, value)
		}
	}
	return out
}

// IfUnchanged returns a merge patch with the changes since before. The API server rejects it if the object has changed there since.
func IfUnchanged(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// Merge changes some fields of an object by a merge patch. A nil value removes a field. obj receives the result.
func Merge(ctx context.Context, c client.Writer, obj client.Object, owner client.FieldOwner, fields map[string]any, opts ...client.PatchOption) error {
	patch, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), append(opts, owner)...)
}

func established(ctx context.Context, c client.WithWatch, objs []*unstructured.Unstructured) error {
	return each(objs, func(_ int, o *unstructured.Unstructured) error {
		if o.GetKind() != "CustomResourceDefinition" {
			return nil
		}
		return WaitReady(ctx, c, o, func(string) {})
	})
}

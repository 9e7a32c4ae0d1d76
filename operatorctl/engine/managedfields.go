// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// untracked is the manager to which the API server assigns the fields that an object had before they were tracked.
const untracked = "before-first-apply"

// Transfer moves the fields that pass the test from managers that own them by Update to another one that owns them by Apply: the fields that it does
// not apply next time are removed. It does what client-go's csaupgrade does, field by field. version is the apiVersion that the new owner applies;
// entries of other versions name fields that may not exist in this one, and are dropped. changed is false if there is nothing to move.
func Transfer(entries []metav1.ManagedFieldsEntry, from []string, to, version string,
	test func(fieldpath.Path) bool) (_ []metav1.ManagedFieldsEntry, changed bool, _ error) {
	given := fieldpath.NewSet()
	var out []metav1.ManagedFieldsEntry
	target := -1
	for _, e := range entries {
		theirs := slices.Contains(from, e.Manager) && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" && e.FieldsV1 != nil
		if !theirs {
			if e.Manager == to && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" {
				target = len(out)
			}
			out = append(out, e)
			continue
		}
		owned, err := FieldsOf(e)
		if err != nil {
			return nil, false, err
		}
		keep, give := split(owned, test)
		if give.Empty() {
			out = append(out, e)
			continue
		}
		changed = true
		if e.APIVersion == version {
			given = given.Union(give)
		}
		if !keep.Empty() {
			if e, err = withFields(e, keep); err != nil {
				return nil, false, err
			}
			out = append(out, e)
		}
	}
	if !changed {
		return entries, false, nil
	}
	if target < 0 {
		target = len(out)
		out = append(out, metav1.ManagedFieldsEntry{
			Manager: to, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
		})
	}
	owned, err := FieldsOf(out[target])
	if err != nil {
		return nil, false, err
	}
	out[target], err = withFields(out[target], owned.Union(given))
	return out, err == nil, err
}

func split(owned *fieldpath.Set, test func(fieldpath.Path) bool) (keep, give *fieldpath.Set) {
	keep, give = fieldpath.NewSet(), fieldpath.NewSet()
	owned.Iterate(func(p fieldpath.Path) {
		if test == nil || test(p) {
			give.Insert(p.Copy())
		} else {
			keep.Insert(p.Copy())
		}
	})
	return keep, give
}

// FieldsOf returns the fields that an entry of managedFields owns.
func FieldsOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	s := fieldpath.NewSet()
	if e.FieldsV1 == nil {
		return s, nil
	}
	if err := s.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("reading the fields of manager %q: %w", e.Manager, err)
	}
	return s, nil
}

func withFields(e metav1.ManagedFieldsEntry, s *fieldpath.Set) (metav1.ManagedFieldsEntry, error) {
	b, err := s.ToJSON()
	if err != nil {
		return e, fmt.Errorf("writing the fields of manager %q: %w", e.Manager, err)
	}
	e.FieldsV1 = metav1.NewFieldsV1(string(bytes.TrimSpace(b)))
	return e, nil
}

// TransferPatch returns the patch that sets new managedFields on an object; the API server reports a conflict if its resourceVersion changed.
func TransferPatch(entries []metav1.ManagedFieldsEntry, resourceVersion string) (client.Patch, error) {
	b, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": resourceVersion},
	})
	if err != nil {
		return nil, fmt.Errorf("writing managed fields: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, b), nil
}

// looker is a field manager that never owns anything: it applies an empty object as a dry run, and the response shows who owns what. The cache drops
// managedFields.
const looker = "ocadm-operator-looks"

// look reads an object with its managedFields in a version, "" for any. Fields of an object that were never tracked belong to the manager untracked.
func (a *Applier) look(ctx context.Context, key Key, version string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(key.GVK)
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	o.SetResourceVersion(version)
	err := a.Writer.Patch(ctx, o, client.Apply, client.FieldOwner(looker), client.DryRunAll) //nolint:staticcheck // it is not a complete object
	return o, err
}

// takeOver makes the operator the owner of what an earlier one owns of an object that was never applied: otherwise its fields that we do not render
// would stay forever. The key of a ConfigMap that running pods mount stays with its owner for now. o has its managedFields; takeOver returns its new
// resourceVersion.
func (a *Applier) takeOver(ctx context.Context, key Key, o *unstructured.Unstructured) (string, error) {
	version := o.GetResourceVersion()
	var test func(fieldpath.Path) bool
	if a.Take != nil {
		test = a.Take(key)
	}
	entries, changed, err := Transfer(o.GetManagedFields(), []string{a.Earlier, untracked}, FieldManager, key.GVK.GroupVersion().String(), test)
	if err != nil || !changed {
		return version, err
	}
	patch, err := TransferPatch(entries, version)
	if err != nil {
		return version, err
	}
	answer := o.DeepCopy()
	err = a.Writer.Patch(ctx, answer, patch, client.FieldOwner(FieldManager))
	return answer.GetResourceVersion(), err
}

// isEarliers reports whether the earlier operator owns fields of an object.
func (a *Applier) isEarliers(o client.Object) bool {
	return a.Earlier != "" && slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == a.Earlier })
}

// adopt makes this operator the owner of an object that it has never applied. seen is the resourceVersion that the caller rendered from, "" for any;
// adopt returns the one to apply over.
func (a *Applier) adopt(ctx context.Context, key Key, live client.Object, seen string) (string, error) {
	if live.GetAnnotations()[HashAnnotation] != "" {
		return seen, nil
	}
	o, err := a.look(ctx, key, cmp.Or(seen, live.GetResourceVersion()))
	if err != nil {
		return seen, err
	}
	version, err := a.takeOver(ctx, key, o)
	if seen == "" {
		version = ""
	}
	return version, err
}

// send applies an object and returns the response. Only the response shows what the earlier operator created without labels: the cache lacks it.
func (a *Applier) send(ctx context.Context, key Key, desired *unstructured.Unstructured, isNew bool) (*unstructured.Unstructured, error) {
	apply := func() (*unstructured.Unstructured, error) {
		answer := desired.DeepCopy()
		return answer, a.Writer.Patch(ctx, answer, client.Apply, //nolint:staticcheck // typed apply configurations do not exist for rendered objects
			client.FieldOwner(FieldManager), client.ForceOwnership)
	}
	answer, err := apply()
	if err != nil || !isNew || !a.isEarliers(answer) {
		return answer, err
	}
	if _, err := a.takeOver(ctx, key, answer); err != nil {
		return answer, err
	}
	return apply()
}

// AppliedBy reports whether live holds what desired says, and manager owns exactly that: not less, and no field that desired no longer has. Lists
// count as one value, which is right for custom resources with atomic lists.
func AppliedBy(live client.Object, manager string, desired *unstructured.Unstructured) (bool, error) {
	owned := fieldpath.NewSet()
	for _, m := range live.GetManagedFields() {
		if m.Manager != manager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || m.FieldsV1 == nil {
			continue
		}
		if err := owned.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
			return false, fmt.Errorf("reading managed fields of %q: %w", manager, err)
		}
	}
	wanted := fieldpath.NewSet()
	spec, _ := desired.Object["spec"].(map[string]any)
	leaves(fieldpath.MakePathOrDie("spec"), spec, wanted)
	metadata := map[string]any{}
	for key, value := range desired.GetAnnotations() {
		metadata[key] = value
		if live.GetAnnotations()[key] != value {
			return false, nil
		}
	}
	leaves(fieldpath.MakePathOrDie("metadata", "annotations"), metadata, wanted)
	if !owned.Leaves().Equals(wanted) {
		return false, nil
	}
	l, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, fmt.Errorf("comparing: %w", err)
	}
	ok, _ := Holds(desired.Object["spec"], l["spec"])
	return ok, nil
}

func leaves(path fieldpath.Path, m map[string]any, into *fieldpath.Set) {
	for k, v := range m {
		p := append(path.Copy(), fieldpath.PathElement{FieldName: &k})
		if child, ok := v.(map[string]any); ok && len(child) > 0 {
			leaves(p, child, into)
			continue
		}
		into.Insert(p)
	}
}

// DataKeys returns the keys of a ConfigMap's data that an entry of managedFields owns.
func DataKeys(m metav1.ManagedFieldsEntry) []string {
	set, err := FieldsOf(m)
	if err != nil {
		return nil // the API server writes readable entries; any other owns nothing that we could name
	}
	var out []string
	set.Iterate(func(p fieldpath.Path) {
		if len(p) == 2 && p[0].FieldName != nil && *p[0].FieldName == "data" && p[1].FieldName != nil && !strings.HasPrefix(*p[1].FieldName, ".") {
			out = append(out, *p[1].FieldName)
		}
	})
	return out
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// AppliedBy reports whether live holds what desired says, and manager owns just that: neither less, nor a field that desired no longer has.
// Lists count as one value; that is right for custom resources whose lists are atomic.
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

// DataKeys are the keys of a ConfigMap's data that an entry of managedFields owns.
func DataKeys(m metav1.ManagedFieldsEntry) []string {
	set, err := FieldsOf(m)
	if err != nil {
		return nil // an entry the API server wrote is readable; one that is not owns nothing we could name
	}
	var out []string
	set.Iterate(func(p fieldpath.Path) {
		if len(p) == 2 && p[0].FieldName != nil && *p[0].FieldName == "data" && p[1].FieldName != nil && !strings.HasPrefix(*p[1].FieldName, ".") {
			out = append(out, *p[1].FieldName)
		}
	})
	return out
}

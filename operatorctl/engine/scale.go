// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ScaledBy names the autoscaler that sets the number of pods of a workload through its scale subresource, "" if there is none. A person
// with "kubectl scale" is none: what is edited by hand is set back.
func ScaledBy(live client.Object) string {
	for _, m := range live.GetManagedFields() {
		if m.Subresource == "scale" && !strings.HasPrefix(m.Manager, "kubectl") {
			return m.Manager
		}
	}
	return ""
}

// ScaleEntries are the entries of managedFields that ScaledBy reads. The cache keeps these and drops the others.
func ScaleEntries(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, m := range entries {
		if m.Subresource == "scale" {
			m.FieldsV1 = nil
			out = append(out, m)
		}
	}
	return out
}

// leaveScale takes the number of pods out of what is to be applied where an autoscaler sets it. None is none: an autoscaler leaves that alone.
func leaveScale(desired map[string]any, live client.Object) []Kept {
	manager := ScaledBy(live)
	if kind := desired["kind"]; manager == "" || kind != "Deployment" && kind != "StatefulSet" {
		return nil
	}
	if n, set, _ := unstructured.NestedInt64(desired, "spec", "replicas"); set && n == 0 {
		return nil
	}
	unstructured.RemoveNestedField(desired, "spec", "replicas")
	return []Kept{{ReasonAutoscaled, "its number of pods is set by " + manager + ", an autoscaler"}}
}

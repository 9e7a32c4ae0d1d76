// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// preserveImmutable adjusts desired where the API server does not let a field of live change. If the object works with the live value, it keeps that
// and returns a sentence about it: the rest of the object is still applied. If not, it returns a Refusal with the command that lets the operator
// recreate the object; nothing is deleted here. size is false if the API server rejected the resize of a claim, whose size is then kept.
func preserveImmutable(desired, live map[string]any, size bool) (kept []Kept, refused error) {
	kind, _ := desired["kind"].(string)
	s := settling{kind: kind, desired: desired, live: live}
	s.name, _, _ = unstructured.NestedString(desired, "metadata", "name")
	s.namespace, _, _ = unstructured.NestedString(desired, "metadata", "namespace")
	switch kind {
	case "Deployment", "DaemonSet":
		s.selector()
	case "StatefulSet":
		s.selector()
		s.statefulSet()
	case "PersistentVolumeClaim":
		s.claim(size)
	case "Service":
		s.service()
	case "ConfigMap", "Secret":
		s.sealed()
	}
	return s.kept, s.refused
}

type settling struct {
	kind, namespace, name string
	desired, live         map[string]any
	kept                  []Kept
	refused               error
}

func (s *settling) refuse(what string) {
	command := fmt.Sprintf("kubectl -n %s delete %s %s", s.namespace, strings.ToLower(s.kind), s.name)
	s.refused = &Refusal{Reason: ReasonImmutable,
		Err: fmt.Errorf("%s %q: %s; it cannot be changed: to recreate it, run: %s", s.kind, s.name, what, command)}
}

func (s *settling) keep(format string, args ...any) {
	s.kept = append(s.kept, Kept{ReasonImmutable, fmt.Sprintf("%s %s keeps ", s.kind, s.name) + fmt.Sprintf(format, args...)})
}

// selector keeps the live selector as long as the desired pods match it. Labels that it requires beyond ours are added to the pods.
func (s *settling) selector() {
	ours, _, _ := unstructured.NestedMap(s.desired, "spec", "selector")
	theirs, found, _ := unstructured.NestedMap(s.live, "spec", "selector")
	if !found || same(ours, theirs) {
		return
	}
	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(theirs, &selector); err != nil {
		return // the API server will report the error
	}
	pod, _, _ := unstructured.NestedStringMap(s.desired, "spec", "template", "metadata", "labels")
	pod = maps.Clone(pod)
	for k, v := range selector.MatchLabels {
		if _, has := pod[k]; !has {
			pod[k] = v
		}
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil || !parsed.Matches(labels.Set(pod)) {
		s.refuse("it selects pods by " + metav1.FormatLabelSelector(&selector) + ", but its pods now have other labels")
		return
	}
	_ = unstructured.SetNestedMap(s.desired, theirs, "spec", "selector") // spec is a map: it was rendered
	_ = unstructured.SetNestedStringMap(s.desired, pod, "spec", "template", "metadata", "labels")
}

// rolled reports whether a Deployment changes to Recreate and still has the parameters of a rolling update. The API server defaulted them, rejects
// Recreate while they are set, and does not let an apply remove what its manager does not own.
func rolled(desired, live map[string]any) bool {
	kind, _, _ := unstructured.NestedString(desired, "spec", "strategy", "type")
	rolling, _, _ := unstructured.NestedMap(live, "spec", "strategy", "rollingUpdate")
	return desired["kind"] == "Deployment" && kind == "Recreate" && rolling != nil
}

// recreate is the patch that removes them.
const recreate = `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`

// statefulSet keeps the identity and the claims of the pods, which never change. Different claims are reported.
func (s *settling) statefulSet() {
	for _, field := range []string{"serviceName", "podManagementPolicy", "volumeClaimTemplates"} {
		ours, want, _ := unstructured.NestedFieldNoCopy(s.desired, "spec", field)
		theirs, has, _ := unstructured.NestedFieldNoCopy(s.live, "spec", field)
		if !want && !has {
			continue
		}
		if ok, where := Holds(ours, theirs); ok && want {
			continue
		} else if field == "volumeClaimTemplates" && !strings.Contains(where, ".metadata.") {
			s.keep("its current claims (spec.volumeClaimTemplates%s would change): for new ones, run: kubectl -n %s delete statefulset %s --cascade=orphan",
				where, s.namespace, s.name)
		}
		if has {
			_ = unstructured.SetNestedField(s.desired, runtime.DeepCopyJSONValue(theirs), "spec", field)
		} else {
			unstructured.RemoveNestedField(s.desired, "spec", field)
		}
	}
}

// claim keeps the immutable fields of a claim, and a size that cannot change.
func (s *settling) claim(size bool) {
	for _, field := range []string{"storageClassName", "accessModes", "volumeMode", "volumeName"} {
		ours, want, _ := unstructured.NestedFieldNoCopy(s.desired, "spec", field)
		theirs, has, _ := unstructured.NestedFieldNoCopy(s.live, "spec", field)
		if !want || !has || same(ours, theirs) {
			continue
		}
		s.keep("%s %v (%v is requested): it cannot be changed for an existing volume", field, theirs, ours)
		_ = unstructured.SetNestedField(s.desired, runtime.DeepCopyJSONValue(theirs), "spec", field)
	}
	ours, theirs := storage(s.desired), storage(s.live)
	switch {
	case ours.IsZero() || theirs.IsZero() || ours.Cmp(theirs) == 0:
		return
	case ours.Cmp(theirs) < 0:
		s.keep("its size %s (%s is requested): a volume cannot shrink", theirs.String(), ours.String())
	case size:
		return
	default:
		s.keep("its size %s (%s is requested): the API server rejected the expansion, usually because its StorageClass does not set allowVolumeExpansion",
			theirs.String(), ours.String())
	}
	_ = unstructured.SetNestedField(s.desired, theirs.String(), "spec", "resources", "requests", "storage")
}

func storage(claim map[string]any) resource.Quantity {
	v, _, _ := unstructured.NestedFieldNoCopy(claim, "spec", "resources", "requests", "storage")
	q, err := resource.ParseQuantity(fmt.Sprint(v))
	if err != nil {
		return resource.Quantity{}
	}
	return q
}

// grows reports whether a claim gets larger.
func grows(desired, live map[string]any) bool {
	if desired["kind"] != "PersistentVolumeClaim" || live == nil {
		return false
	}
	ours, theirs := storage(desired), storage(live)
	return !theirs.IsZero() && ours.Cmp(theirs) > 0
}

func (s *settling) service() {
	ours, _, _ := unstructured.NestedString(s.desired, "spec", "clusterIP")
	theirs, _, _ := unstructured.NestedString(s.live, "spec", "clusterIP")
	switch {
	case theirs == "None" && ours != "None":
		s.refuse("it is headless, but must have an address")
	case theirs != "None" && theirs != "" && ours == "None":
		s.refuse("it has an address, but must be headless")
	}
}

// sealed refuses to change a ConfigMap or Secret that a user declared immutable, or the type of a Secret.
func (s *settling) sealed() {
	if ours, theirs := s.desired["type"], s.live["type"]; s.kind == "Secret" && ours != nil && theirs != nil && ours != theirs {
		s.refuse(fmt.Sprintf("it has type %v, but must have %v", theirs, ours))
		return
	}
	if immutable, _ := s.live["immutable"].(bool); !immutable {
		return
	}
	for _, field := range []string{"data", "stringData", "binaryData"} {
		if ok, _ := Holds(s.desired[field], s.live[field]); !ok {
			// Deleted, a Secret would take a CA with it, and a ConfigMap the users' options.
			s.refused = &Refusal{Reason: ReasonImmutable, Err: fmt.Errorf("%s %q: it is immutable, but its %s must change: pause the cloud, run: "+
				"kubectl -n %s get %s %s -o yaml | sed '/^immutable:/d' | kubectl replace --force -f -, and continue the cloud",
				s.kind, s.name, field, s.namespace, strings.ToLower(s.kind), s.name)}
			return
		}
	}
}

// same reports whether a and b hold each other's values.
func same(a, b any) bool {
	x, _ := Holds(a, b)
	y, _ := Holds(b, a)
	return x && y
}

// terminating returns an error if an object is being deleted, with what blocks that.
func terminating(o metav1.Object) error {
	if o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	what := "it is being deleted"
	if f := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(s string) bool { return s == metav1.FinalizerDeleteDependents }); len(f) > 0 {
		what += ", blocked by the finalizers " + strings.Join(f, ", ")
	}
	return fmt.Errorf("%q: %s; it is recreated once it is deleted", o.GetName(), what)
}

// ScaledBy returns the autoscaler that sets the replicas of a workload through its scale subresource, "" if there is none. "kubectl scale" does not
// count: manual edits are reverted.
func ScaledBy(live client.Object) string {
	for _, m := range live.GetManagedFields() {
		if m.Subresource == "scale" && !strings.HasPrefix(m.Manager, "kubectl") {
			return m.Manager
		}
	}
	return ""
}

// ScaleEntries returns the managedFields entries that ScaledBy reads. The cache drops all others.
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

// leaveScale removes the replicas from desired if an autoscaler sets them. Zero stays: autoscalers leave that alone.
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

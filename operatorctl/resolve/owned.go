// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// Owned records which managers own the fields of a spec.
type Owned struct {
	// defaults are the fields of the defaults manager, earlier those of the earlier operator (images that no user chose), users all others.
	defaults, earlier, users *fieldpath.Set
	// files are the fields of each manager that applied a file saved from the earlier operator, edits those of other users.
	files []*fieldpath.Set
	edits *fieldpath.Set
	// applied is the spec of such a file from the last "kubectl apply", nil for any other file.
	applied map[string]any
}

// lastApplied is where "kubectl apply" keeps the whole file. Its managed fields cover only what the file changed.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// earlierMarks returns the fields that only the earlier operator wrote into a spec.
func earlierMarks() [][]string {
	return [][]string{{"telegraf", "initContainerImage"}, {"notify", "plugins", "image"}, {"etcd", "createdSecrets"}}
}

// isEarlier reports whether a spec comes from the earlier operator: it has one of those fields. has reports whether a field exists.
func isEarlier(has func(path []string) bool) bool { return slices.ContainsFunc(earlierMarks(), has) }

// NewOwned evaluates the managed fields of a resource's spec.
func NewOwned(resource metav1.Object) (*Owned, error) {
	entries := resource.GetManagedFields()
	o := &Owned{defaults: fieldpath.NewSet(), earlier: fieldpath.NewSet(), users: fieldpath.NewSet(), edits: fieldpath.NewSet()}
	o.applied = earlierFile(resource.GetAnnotations()[lastApplied])
	spec := "spec"
	for _, e := range entries {
		if e.Subresource != "" {
			continue
		}
		s, err := engine.FieldsOf(e)
		if err != nil {
			return nil, err
		}
		recorded := s.Has(fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.AnnotationDefaultImages))
		s = s.WithPrefix(fieldpath.PathElement{FieldName: &spec})
		switch e.Manager {
		case v1alpha1.ManagerDefaults:
			o.defaults = o.defaults.Union(s)
		case v1alpha1.ManagerEarlier:
			o.earlier = o.earlier.Union(s)
		default:
			o.users = o.users.Union(s)
			if !recorded && isEarlier(func(path []string) bool { return s.Has(fieldPath(path)) }) {
				o.files = append(o.files, s)
			} else {
				o.edits = o.edits.Union(s)
			}
		}
	}
	return o, nil
}

// Has reports whether the field spec.<path> is not owned by the defaults manager alone.
func (o *Owned) Has(path ...string) bool {
	p := fieldPath(path)
	return o.users.Has(p) || o.earlier.Has(p) || !o.defaults.Has(p)
}

// personal is like Has, but excludes fields of the earlier operator.
func (o *Owned) personal(path ...string) bool {
	p := fieldPath(path)
	return o.users.Has(p) || !o.earlier.Has(p) && !o.defaults.Has(p)
}

// earlierFile returns the spec of an applied file if it was saved from the earlier operator, else nil.
func earlierFile(text string) map[string]any {
	file := unstructured.Unstructured{}
	if json.Unmarshal([]byte(text), &file.Object) != nil {
		return nil
	}
	_, recorded := file.GetAnnotations()[v1alpha1.AnnotationDefaultImages]
	spec, _, err := unstructured.NestedMap(file.Object, "spec")
	if recorded || err != nil || !isEarlier(func(path []string) bool {
		_, there, err := unstructured.NestedFieldNoCopy(spec, path...)
		return there && err == nil
	}) {
		return nil
	}
	return spec
}

// ofEarlierFile reports whether the value of a field comes from a file saved from the earlier operator and was not edited since.
func (o *Owned) ofEarlierFile(value string, path ...string) bool {
	if applied, found, err := unstructured.NestedString(o.applied, path...); err == nil && found && applied == value {
		return true
	}
	p := fieldPath(path)
	return !o.edits.Has(p) && slices.ContainsFunc(o.files, func(s *fieldpath.Set) bool { return s.Has(p) })
}

func fieldPath(path []string) fieldpath.Path {
	return lists.Map(path, func(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} })
}

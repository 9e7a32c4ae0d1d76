// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// Owned holds the fields of a spec that somebody other than the defaults manager owns.
type Owned struct {
	// others is everybody; people is everybody but the earlier operator, which wrote images that nobody chose.
	others, people *fieldpath.Set
}

// NewOwned reads who owns which field of a resource's spec.
func NewOwned(entries []metav1.ManagedFieldsEntry) (*Owned, error) {
	o := &Owned{others: fieldpath.NewSet(), people: fieldpath.NewSet()}
	spec := "spec"
	for _, e := range entries {
		if e.Manager == v1alpha1.ManagerDefaults || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		s := &fieldpath.Set{}
		if err := s.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, fmt.Errorf("reading the fields of manager %q: %w", e.Manager, err)
		}
		s = s.WithPrefix(fieldpath.PathElement{FieldName: &spec})
		o.others = o.others.Union(s)
		if e.Manager != v1alpha1.ManagerEarlier {
			o.people = o.people.Union(s)
		}
	}
	return o, nil
}

// Has tells whether somebody other than the defaults manager owns the field spec.<path>.
func (o *Owned) Has(path ...string) bool { return o.others.Has(fieldPath(path)) }

func fieldPath(path []string) fieldpath.Path {
	p := make(fieldpath.Path, len(path))
	for i := range path {
		p[i] = fieldpath.PathElement{FieldName: &path[i]}
	}
	return p
}

// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/operatorctl/engine"
)

func entry(manager string, op metav1.ManagedFieldsOperationType, version, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, APIVersion: version, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestTransfer(t *testing.T) {
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	status := entry("old", update, "apps/v1", `{"f:status":{"f:replicas":{}}}`)
	status.Subresource = "status"
	notData := func(p fieldpath.Path) bool { return !p.Equals(fieldpath.MakePathOrDie("data", "config")) }
	for name, c := range map[string]struct {
		have, want []metav1.ManagedFieldsEntry
		test       func(fieldpath.Path) bool
		changed    bool
	}{
		"nothing to give": {
			have: []metav1.ManagedFieldsEntry{entry("kubectl-edit", update, "apps/v1", `{"f:spec":{"f:a":{}}}`), status},
			want: []metav1.ManagedFieldsEntry{entry("kubectl-edit", update, "apps/v1", `{"f:spec":{"f:a":{}}}`), status},
		},
		"all, to a manager that was not there": {
			have:    []metav1.ManagedFieldsEntry{entry("old", update, "apps/v1", `{"f:spec":{"f:a":{}}}`), status},
			want:    []metav1.ManagedFieldsEntry{status, entry("new", apply, "apps/v1", `{"f:spec":{"f:a":{}}}`)},
			changed: true,
		},
		"added to what the new one has": {
			have:    []metav1.ManagedFieldsEntry{entry("new", apply, "apps/v1", `{"f:spec":{"f:b":{}}}`), entry("old", update, "apps/v1", `{"f:spec":{"f:a":{}}}`)},
			want:    []metav1.ManagedFieldsEntry{entry("new", apply, "apps/v1", `{"f:spec":{"f:a":{},"f:b":{}}}`)},
			changed: true,
		},
		"some": {
			have: []metav1.ManagedFieldsEntry{entry("old", update, "apps/v1", `{"f:data":{".":{},"f:config":{},"f:x":{}}}`)},
			want: []metav1.ManagedFieldsEntry{entry("old", update, "apps/v1", `{"f:data":{"f:config":{}}}`), entry("new", apply, "apps/v1", `{"f:data":{".":{},"f:x":{}}}`)},
			test: notData, changed: true,
		},
		"none passes": {
			have: []metav1.ManagedFieldsEntry{entry("old", update, "apps/v1", `{"f:data":{"f:config":{}}}`)},
			want: []metav1.ManagedFieldsEntry{entry("old", update, "apps/v1", `{"f:data":{"f:config":{}}}`)},
			test: notData,
		},
		"another version's fields may not exist in this one": {
			have:    []metav1.ManagedFieldsEntry{entry("old", update, "extensions/v1beta1", `{"f:spec":{"f:serviceName":{}}}`), entry("old", update, "apps/v1", `{"f:spec":{"f:a":{}}}`)},
			want:    []metav1.ManagedFieldsEntry{entry("new", apply, "apps/v1", `{"f:spec":{"f:a":{}}}`)},
			changed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed, err := engine.Transfer(c.have, []string{"old"}, "new", "apps/v1", c.test)
			if err != nil || changed != c.changed {
				t.Fatalf("changed %v, %v", changed, err)
			}
			plain := func(list []metav1.ManagedFieldsEntry) (out []string) {
				for _, e := range list {
					out = append(out, e.Manager+" "+string(e.Operation)+" "+e.Subresource+" "+e.FieldsV1.GetRawString())
				}
				return out
			}
			if d := cmp.Diff(plain(c.want), plain(got)); d != "" {
				t.Error(d)
			}
		})
	}
	if _, _, err := engine.Transfer([]metav1.ManagedFieldsEntry{entry("old", update, "v1", `{`)}, []string{"old"}, "new", "v1", nil); err == nil {
		t.Error("fields that cannot be read are no error")
	}
}

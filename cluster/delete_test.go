// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// Data is deleted only on request: the spec may still say so from an interrupted deletion. The finalizer is the operator's, which reads the policy.
func TestDeleteKeepsData(t *testing.T) {
	for _, was := range []string{"", "Retain", "Delete"} {
		for data, want := range map[bool]string{false: "Retain", true: "Delete"} {
			cloud := resource(t, head+", finalizers: [onecloud.yunion.io/operator]}\nspec: {version: v1}")
			if was != "" {
				cloud.Object["spec"].(map[string]any)["deletionPolicy"] = was
			} else if !data {
				want = "" // Retain is the default
			}
			c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
			key := client.ObjectKeyFromObject(cloud)
			if there, err := Delete(t.Context(), c, key, data); !there || err != nil {
				t.Fatal(there, err)
			}
			left, err := get(t.Context(), c, key)
			require.NoError(t, err)
			if policy, _, _ := unstructured.NestedString(left.Object, "spec", "deletionPolicy"); policy != want || left.GetDeletionTimestamp() == nil {
				t.Errorf("data %t over %q: %q, deleted %v", data, was, policy, left.GetDeletionTimestamp())
			}
		}
	}
}

// A cloud of an unknown release would lack components, so it is not created.
func TestCreateOfAnUnknownRelease(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	o := Options{Name: "default", Namespace: "onecloud", Version: "v9.9.9", Database: Database{Host: "db"}}
	if _, err := Create(t.Context(), c, o); !isCode(err, "OCA-7059") {
		t.Errorf("%v", err)
	}
	if there, err := Agrees(t.Context(), c, o); there || err != nil {
		t.Errorf("created: %t, %v", there, err)
	}
}

// A cloud that is being deleted does not count as created, even if it matches.
func TestCreateAfterDelete(t *testing.T) {
	o := Options{Name: "default", Namespace: "onecloud", Version: "v1", Database: Database{Host: "db"}}
	cloud := Manifest(o)
	cloud.SetFinalizers([]string{"onecloud.yunion.io/cloud"})
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
	if action, err := Create(t.Context(), c, o); err != nil || action != kube.Unchanged {
		t.Fatal(action, err)
	}
	if _, err := Delete(t.Context(), c, o.Key(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), c, o); err == nil || !strings.Contains(err.Error(), "still being deleted") {
		t.Errorf("%v", err)
	}
	if _, err := Agrees(t.Context(), c, o); err == nil {
		t.Error("it is taken for the one that is to be created")
	}
	r := Restore{contents: &backup.Contents{Header: backup.Header{Cloud: backup.Cloud{Namespace: o.Namespace, Name: o.Name}}}}
	if _, err := r.Exists(t.Context(), c); err == nil || !strings.Contains(err.Error(), "still being deleted") {
		t.Errorf("it is taken for the one that is restored: %v", err)
	}
	if _, err := r.Apply(t.Context(), c); err == nil || !strings.Contains(err.Error(), "still being deleted") {
		t.Errorf("it is restored into: %v", err)
	}
}

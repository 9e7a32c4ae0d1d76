// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/kube"
)

// Data goes only if it is asked for now: the spec may ask for it since a deletion that was cut off. The finalizer is the operator's, which reads the policy.
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
			if err != nil {
				t.Fatal(err)
			}
			if policy, _, _ := unstructured.NestedString(left.Object, "spec", "deletionPolicy"); policy != want || left.GetDeletionTimestamp() == nil {
				t.Errorf("data %t over %q: %q, deleted %v", data, was, policy, left.GetDeletionTimestamp())
			}
		}
	}
}

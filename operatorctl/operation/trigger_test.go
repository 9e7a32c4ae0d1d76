// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// TestOneAnnotationOneOperation: while its annotation is answered, the status of a cloud changes, and a cache shows every version of it, late.
func TestOneAnnotationOneOperation(t *testing.T) {
	made := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{v1alpha1.AnnotationOperation: v1alpha1.ActionBackup},
	}}
	made.Status.Version, made.Status.Release = "v4.0.4", v1alpha1.ReleaseStatus{Revision: 1, Version: "v4.0.4"}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(made).WithStatusSubresource(made).Build()
	c := New(Options{Means: Means{Client: api}, Events: &recorder{}})
	var seen []*v1alpha1.OnecloudCluster
	look := func() *v1alpha1.OnecloudCluster {
		now := &v1alpha1.OnecloudCluster{}
		if err := api.Get(t.Context(), key, now); err != nil {
			t.Fatal(err)
		}
		if len(seen) == 0 || now.ResourceVersion != seen[len(seen)-1].ResourceVersion {
			seen = append(seen, now.DeepCopy())
		}
		return now
	}
	look()
	for turn := 0; turn < len(seen); turn++ {
		if turn < 10 {
			now := look()
			now.Status.ObservedGeneration++
			if err := api.Status().Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			look()
		}
		if err := c.trigger(t.Context(), seen[turn], nil); err != nil {
			t.Fatal(err)
		}
		look()
	}
	last := &v1alpha1.OnecloudCluster{}
	operations := &v1alpha1.OnecloudOperationList{}
	if err := errors.Join(api.Get(t.Context(), key, last), api.List(t.Context(), operations)); err != nil {
		t.Fatal(err)
	}
	if n := len(operations.Items); n != 1 || operations.Items[0].Spec.Action != v1alpha1.ActionBackup {
		t.Errorf("%d operations: %+v", n, operations.Items)
	}
	if word, still := last.Annotations[v1alpha1.AnnotationOperation]; still {
		t.Errorf("the annotation is %q", word)
	}
}

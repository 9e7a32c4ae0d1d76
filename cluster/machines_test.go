// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// A removal with --abandon that fails leaves no mark, which a later removal would obey. A mark that was there before stays.
func TestAbandonFails(t *testing.T) {
	for _, before := range []string{"", "true"} {
		m := &Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w", Annotations: map[string]string{v1alpha1.AnnotationPaused: "true"}}}
		if before != "" {
			m.Annotations[v1alpha1.AnnotationAbandonMachine] = before
		}
		refuses := interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return errors.New("refused")
		}}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(m).WithInterceptorFuncs(refuses).Build()
		if _, err := RemoveMachine(t.Context(), c, client.ObjectKeyFromObject(m), true, false, nil); err == nil {
			t.Fatal("no error")
		}
		live, err := MachineOf(t.Context(), c, client.ObjectKeyFromObject(m))
		if err != nil || live.Annotations[v1alpha1.AnnotationAbandonMachine] != before {
			t.Errorf("%v %v", live, err)
		}
	}
}

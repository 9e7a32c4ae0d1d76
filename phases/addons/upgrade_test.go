// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// A run that finds the new version applied, by a run that was killed, has nothing to restore, and does not claim to have done so.
func TestNothingToRestore(t *testing.T) {
	for name, c := range map[string]struct {
		changes []string
		want    string
	}{
		"an earlier run applied it": {nil, "an earlier run applied it"},
		"it was refused":            {[]string{"configure Deployment"}, "nothing was changed"},
	} {
		d := &appsv1.Deployment{ObjectMeta: named("local-path-storage", "local-path-provisioner")}
		k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(d).Build()
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		require.NoError(t, err)
		o := &unstructured.Unstructured{Object: fields}
		o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		before, err := Present(t.Context(), k, []*unstructured.Unstructured{o})
		if err != nil || len(before) != 1 {
			t.Fatal(before, err)
		}
		i := Installed{Name: "storage", Changes: c.changes} // without a workload to wait for
		f := finding.Of(i.failed(t.Context(), k, before, errors.New("it is not ready"), workflow.Discard{}))
		if len(f) != 1 || strings.Contains(f[0].Cause, "was restored") || !strings.Contains(f[0].Cause, c.want) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

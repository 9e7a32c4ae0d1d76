// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// An earlier CRD is replaced at the version that was read; any other stays.
func TestOnlyAnEarlierDefinitionIsReplaced(t *testing.T) {
	scheme := kube.Scheme()
	all, err := builtDefinitions()
	if err != nil || len(all) != 3 {
		t.Fatalf("%d definitions, %v", len(all), err)
	}
	built := all[0]
	own := built.GetAnnotations()[v1alpha1.AnnotationRevision]
	for _, c := range []struct {
		name, revision string
		answer         error
		writes         int
	}{
		{"without a revision", "", nil, 1},
		{"not a number", "v1", nil, 1},
		{"an earlier one", "0", nil, 1},
		{"the same", own, nil, 0},
		{"a later one", own + "0", nil, 0},
		{"changed meanwhile, each time", "", apierrors.NewConflict(schema.GroupResource{}, "x", nil), definitionTries},
		{"stopped", "", context.Canceled, 1},
	} {
		live := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: built.GetName()}}
		if c.revision != "" {
			live.Annotations = map[string]string{v1alpha1.AnnotationRevision: c.revision}
		}
		writes := 0
		api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(live).Build(), interceptor.Funcs{
			Patch: func(_ context.Context, _ client.WithWatch, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
				writes++
				if patch != client.Apply || o.GetResourceVersion() == "" { //nolint:staticcheck // compared, not used
					t.Errorf("%s: not applied over what was read", c.name)
				}
				return c.answer
			},
		})
		_, err := applyDefinition(t.Context(), api, built)
		if !errors.Is(err, c.answer) || writes != c.writes {
			t.Errorf("%s: %d writes, want %d: %v", c.name, writes, c.writes, err)
		}
	}
}

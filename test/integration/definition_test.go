// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// TestDefinitionIsUpdated starts the operator with an older definition of OnecloudCluster, with a newer one, and without permission to write it.
// There is no database and no cloud.
func TestDefinitionIsUpdated(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.ageDefinition("")
	e.untilAccepted(false)
	e.StartOperator()
	e.untilSaid("updated the definition of OnecloudCluster")
	e.untilAccepted(true)
	e.untilSaid("Starting workers")
	e.StopOperator()
	if said := e.Said(); strings.Count(said, "updated the definition") != 1 {
		t.Errorf("not said once:\n%s", said)
	}
	e.StartOperator() // finds nothing to do
	e.untilSaid("Starting workers")
	e.StopOperator()
	if said := e.Said(); strings.Contains(said, "definition") {
		t.Errorf("started again, the operator says:\n%s", said)
	}

	e.ageDefinition("1000000")
	e.StartOperator()
	e.untilSaid("is from a later release and is kept")
	e.untilSaid("Starting workers")
	e.untilAccepted(false)
	e.StopOperator()

	e.ageDefinition("")
	require.NoError(t, e.Client.Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "onecloud-operator-definition"}}))
	e.StartOperator()
	e.untilSaid("no permission to update the definition")
	e.untilSaid("Starting workers")
	e.untilAccepted(false)
}

// ageDefinition removes spec.glance.dnsConfig from the definition and sets its revision; "" removes it.
func (e *cloudTest) ageDefinition(revision string) {
	e.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	require.NoError(e, e.Client.Get(e.Context(), client.ObjectKey{Name: "onecloudclusters.onecloud.yunion.io"}, crd))
	crd.SetAnnotations(map[string]string{v1alpha1.AnnotationRevision: revision})
	if revision == "" {
		crd.SetAnnotations(nil)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	require.NoError(e, err)
	version, ok := versions[0].(map[string]any)
	if !ok {
		e.Fatal("the definition has no version")
	}
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "glance", "properties", "dnsConfig")
	require.NoError(e, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	require.NoError(e, e.Client.Update(e.Context(), crd, client.FieldOwner("an-earlier-release")))
}

// untilAccepted sends requests as kubectl does until the API server accepts or rejects spec.glance.dnsConfig. A stored definition is served after a
// delay that nothing announces.
func (e *cloudTest) untilAccepted(want bool) {
	e.Helper()
	spec := map[string]any{"mysql": map[string]any{"host": "192.0.2.1", "password": "none"}, "glance": map[string]any{"dnsConfig": map[string]any{}}}
	e.Eventually(func() (bool, string) {
		err := e.Client.Create(e.Context(), written("probe", spec), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		if err != nil && !strings.Contains(err.Error(), `unknown field "spec.glance.dnsConfig"`) {
			e.Fatal(err)
		}
		return (err == nil) == want, fmt.Sprint("the API server says ", err)
	})
}

// untilSaid waits for a line of the operator's log.
func (e *cloudTest) untilSaid(text string) {
	e.Helper()
	e.Eventually(func() (bool, string) { return strings.Contains(e.Said(), text), "not said: " + text + "\n" + e.Said() })
}

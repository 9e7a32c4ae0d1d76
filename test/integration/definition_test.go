// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/integration/harness"
)

// TestDefinitionIsUpdated starts the operator where the definition of OnecloudCluster is an earlier one, where it is a later one, and
// where the operator may not write it. There is no database and no cloud.
func TestDefinitionIsUpdated(t *testing.T) {
	r := &rig{t: t, whole: t.Context(), log: &harness.Log{}, namespaces: []string{namespace}, dial: (&net.Dialer{}).DialContext}
	r.cluster = harness.Require(t, harness.Options{})
	var err error
	if r.client, err = kube.New(r.cluster.Config(harness.Admin)); err != nil {
		t.Fatal(err)
	}
	r.apply("operator/deployment", "operator/rbac", "operator/namespace", "operator/crds")
	t.Cleanup(r.stopOperator)

	r.ageDefinition("")
	r.untilAccepted(false)
	r.startOperator()
	r.untilSaid("updated the definition of OnecloudCluster")
	r.untilAccepted(true)
	r.untilSaid("Starting workers")
	r.stopOperator()
	if said := r.log.String(); strings.Count(said, "updated the definition") != 1 {
		t.Errorf("not said once:\n%s", said)
	}
	r.log = &harness.Log{}
	r.startOperator() // finds nothing to do
	r.untilSaid("Starting workers")
	r.stopOperator()
	if said := r.log.String(); strings.Contains(said, "definition") {
		t.Errorf("started again, the operator says:\n%s", said)
	}

	r.ageDefinition("1000000")
	r.log = &harness.Log{}
	r.startOperator()
	r.untilSaid("is that of a later release and stays")
	r.untilSaid("Starting workers")
	r.untilAccepted(false)
	r.stopOperator()

	r.ageDefinition("")
	if err := r.client.Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "onecloud-operator-definition"}}); err != nil {
		t.Fatal(err)
	}
	r.log = &harness.Log{}
	r.startOperator()
	r.untilSaid("no right to update the definition")
	r.untilSaid("Starting workers")
	r.untilAccepted(false)
}

// ageDefinition takes spec.glance.dnsConfig out of the definition and gives it a revision, "" being none.
func (r *rig) ageDefinition(revision string) {
	r.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Name: "onecloudclusters.onecloud.yunion.io"}, crd); err != nil {
		r.t.Fatal(err)
	}
	crd.SetAnnotations(map[string]string{v1alpha1.AnnotationRevision: revision})
	if revision == "" {
		crd.SetAnnotations(nil)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		r.t.Fatal(err)
	}
	version, ok := versions[0].(map[string]any)
	if !ok {
		r.t.Fatal("the definition has no version")
	}
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "glance", "properties", "dnsConfig")
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		r.t.Fatal(err)
	}
	if err := r.client.Update(r.t.Context(), crd, client.FieldOwner("an-earlier-release")); err != nil {
		r.t.Fatal(err)
	}
}

// untilAccepted asks the API server, as kubectl does, until it takes spec.glance.dnsConfig, or refuses it. It serves a definition some
// time after it has stored it, and nothing tells when.
func (r *rig) untilAccepted(want bool) {
	r.t.Helper()
	spec := map[string]any{"mysql": map[string]any{"host": "192.0.2.1", "password": "none"}, "glance": map[string]any{"dnsConfig": map[string]any{}}}
	var err error
	r.eventually(func() bool {
		err = r.client.Create(r.t.Context(), written("probe", spec), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		if err != nil && !strings.Contains(err.Error(), `unknown field "spec.glance.dnsConfig"`) {
			r.t.Fatal(err)
		}
		return (err == nil) == want
	}, func() string { return "the API server says " + errorText(err) })
}

func errorText(err error) string {
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

// untilSaid waits for a line of the operator's log.
func (r *rig) untilSaid(text string) {
	r.t.Helper()
	r.eventually(func() bool { return strings.Contains(r.log.String(), text) }, func() string { return "not said: " + text + "\n" + r.log.String() })
}

func (r *rig) eventually(holds func() bool, why func() string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); !holds(); {
		select {
		case <-ctx.Done():
			r.t.Fatal(why())
		case <-tick.C:
		}
	}
}

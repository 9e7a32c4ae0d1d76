// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

// TestMachineDefinition compares the CRD of machines with docs/reference/cluster-api.md.
func TestMachineDefinition(t *testing.T) {
	text, err := os.ReadFile("../../templates/operator/crds/onecloud.yunion.io_onecloudmachines.yaml")
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict(text, &crd))
	n := crd.Spec.Names
	if crd.Spec.Scope != apiextensionsv1.NamespaceScoped || n.Plural != strings.ToLower(n.Kind)+"s" || crd.Name != n.Plural+"."+crd.Spec.Group || n.ListKind != n.Kind+"List" {
		t.Errorf("%s %s %+v", crd.Spec.Scope, crd.Name, n)
	}
	if crd.Spec.Versions[0].Subresources.Status == nil {
		t.Error("it has no subresource status")
	}
	for label := range crd.Labels {
		if strings.HasPrefix(label, "cluster.x-k8s.io/") {
			t.Errorf("label %s offers machines to the controllers of Cluster API", label)
		}
	}
	fields := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	for _, path := range []string{
		"spec.providerID", "spec.bootstrap.dataSecretName", "status.initialization.provisioned", "status.initialization.dataSecretCreated", "status.addresses",
		"status.conditions", "status.failureReason", "status.failureMessage", "status.dataSecretName", "status.nodeRef.name", "status.phase",
	} {
		at := fields
		for name := range strings.SplitSeq(path, ".") {
			f, there := at[name]
			if !there {
				t.Errorf("there is no %s", path)
			}
			at = f.Properties
		}
	}
	for _, o := range []runtime.Object{&v1alpha1.OnecloudMachine{}, &v1alpha1.OnecloudMachineList{}} {
		if _, there := reflect.TypeOf(o).Elem().FieldByName("TypeMeta"); !there {
			t.Errorf("%T has no TypeMeta", o)
		}
	}
}

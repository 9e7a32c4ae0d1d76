// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/operatorctl/catalog"
	machinectl "yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/nodecerts"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/require"
)

// The CRD accepts exactly the actions that the operator knows.
func TestDefinitionListsTheActions(t *testing.T) {
	var known []string
	for _, a := range slices.Concat(operation.Actions(catalog.All()), machinectl.Actions(machinectl.Options{}), []operation.Action{nodecerts.Action("x")}) {
		known = append(known, a.Name)
	}
	slices.Sort(known)
	all, err := builtDefinitions()
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return strings.HasPrefix(u.GetName(), "onecloudoperations.") })
	versions, _, _ := unstructured.NestedSlice(all[i].Object, "spec", "versions")
	values, _, err := unstructured.NestedStringSlice(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", "action", "enum")
	slices.Sort(values)
	if err != nil || !slices.Equal(values, known) {
		t.Errorf("the CRD accepts %q, the operator knows %q, %v", values, known, err)
	}
}

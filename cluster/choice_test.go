// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/test/require"
)

// A value that is the default today is a choice nevertheless: the default may change with the profile or the release.
func TestChoiceOfTheDefault(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithReturnManagedFields().
		WithObjects(theCloud("db")).Build()
	apply := func(u map[string]any, manager string) {
		t.Helper()
		o := &unstructured.Unstructured{Object: u}
		o.SetNamespace("onecloud")
		require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership))
	}
	apply(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind, "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"regionServer": map[string]any{"replicas": int64(2), "tag": "v4"}, "keystone": map[string]any{"replicas": int64(2), "tag": "v4", "disable": true}}}, v1alpha1.ManagerDefaults)
	apply(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "default-region"},
		"data": map[string]any{"log_level": "info", "time_zone": "Asia/Shanghai"}}, engine.FieldManager)
	key := client.ObjectKey{Namespace: "onecloud", Name: "default"}
	refs := []ComponentRef{{Cloud: key, Name: "region", Block: []string{"regionServer"}}, {Cloud: key, Name: "keystone", Block: []string{"keystone"}}}
	for i, want := range []int{1, 0} {
		for _, r := range refs {
			if lines, err := r.Apply(t.Context(), c, ComponentChange{"replicas": int64(2)}); err != nil || len(lines) != want {
				t.Errorf("%d: %v, %v", i, lines, err)
			}
		}
		lines, err := refs[1].Apply(t.Context(), c, ComponentChange{"tag": "v4", "disable": true})
		if err != nil || len(lines) != 2*want {
			t.Errorf("%d: %q, %v", i, lines, err)
		}
		lines, err = ChangeServiceOptions(t.Context(), c, key, "region", map[string]*string{"log_level": new("info")})
		if err != nil || len(lines) != want {
			t.Errorf("%d: %v, %v", i, lines, err)
		}
	}
	live, err := get(t.Context(), c, key)
	require.NoError(t, err)
	for _, r := range refs {
		if !r.chosen(live, "replicas") {
			t.Errorf("%s: not chosen: %v", r.Name, live.GetManagedFields())
		}
	}
	if !refs[1].chosen(live, "tag") || !refs[1].chosen(live, "disable") {
		t.Errorf("not chosen: %v", live.GetManagedFields())
	}
	if refs[0].chosen(live, "tag") {
		t.Error("the tag is chosen, too")
	}
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "onecloud", Name: "default-region"}, cm))
	if ours := operatorKeys(cm); ours["log_level"] || !ours["time_zone"] || cm.Data["time_zone"] == "" {
		t.Errorf("%v, %v", ours, cm.Data)
	}
}

// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// TestProfile checks that ha doubles what may have several copies, that a user's choice wins, and that etcd keeps its members.
func TestProfile(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.OnecloudClusterSpec)
		want   map[string]int32
	}{
		"small":  {func(*v1alpha1.OnecloudClusterSpec) {}, map[string]int32{"keystone": 1, "region": 1, "etcd": 1, "glance": 1}},
		"ha":     {func(s *v1alpha1.OnecloudClusterSpec) { s.Profile = "ha" }, map[string]int32{"keystone": 2, "region": 2, "web": 2, "etcd": 3, "glance": 1, "notify": 1}},
		"chosen": {func(s *v1alpha1.OnecloudClusterSpec) { s.Profile, s.Keystone.Replicas = "ha", new(int32(3)) }, map[string]int32{"keystone": 3, "apigateway": 2}},
		"etcd runs with one member": {func(s *v1alpha1.OnecloudClusterSpec) { s.Profile, s.Etcd.Size = "ha", 1 },
			map[string]int32{"keystone": 2, "region": 1, "etcd": 1}},
		"etcd was taken away to be recreated": {func(s *v1alpha1.OnecloudClusterSpec) { s.Profile, s.Etcd.Disable = "ha", new(true) },
			map[string]int32{"keystone": 2, "region": 1, "etcd": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			cr := &v1alpha1.OnecloudCluster{}
			cr.Spec.MySQL.Host, cr.Spec.Version = "db", "v4.0.4"
			tc.change(&cr.Spec)
			c, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: map[string]string{"mariadb": "m:1", "busybox": "b:1"}})
			require.NoError(t, err)
			for component, want := range tc.want {
				if got := c.Components[component].Replicas; got != want {
					t.Errorf("%s: %d pods, want %d", component, got, want)
				}
			}
		})
	}
}

// TestSingleIsSaid checks that a Deployment whose pods cannot run concurrently states why.
func TestSingleIsSaid(t *testing.T) {
	for _, c := range catalog.All() {
		w := c.Workload
		deployment := c.WorkloadKind() == component.Deployment
		if deployment && (w.Recreate || w.HostNetwork || w.PerZone || c.Storage != nil) && c.Single == "" {
			t.Errorf("%s: why does one copy run in profile ha?", c.Name)
		}
		if !deployment && c.Single != "" {
			t.Errorf("%s is a %s and says why it is single", c.Name, w.Kind)
		}
	}
}

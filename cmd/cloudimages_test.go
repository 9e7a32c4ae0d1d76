// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"slices"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

// Every image that the operator will run in a new cloud is in the list used to fill a bundle and a registry.
func TestEveryImageOfTheCatalogueIsListed(t *testing.T) {
	for _, repository := range []string{"", "registry.example.com:5000/mirror"} {
		c := config.Default()
		c.Cloud.Version, c.Cluster.ImageRepository = "v4.0.4", repository
		listed, err := allImages(&c)
		require.NoError(t, err)
		cr := &v1alpha1.OnecloudCluster{}
		cr.Name, cr.Spec.MySQL.Host, cr.Spec.Version, cr.Spec.ImageRepository = "default", "db", "v4.0.4", repository
		table, err := images.Load()
		require.NoError(t, err)
		cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
		require.NoError(t, err)
		n := 0
		for name, r := range cluster.Components {
			if !r.Enabled || r.FullImage == "" {
				continue
			}
			want := []string{r.FullImage}
			for _, s := range r.ContainerImages {
				want = append(want, s)
			}
			for _, image := range want {
				n++
				if !slices.Contains(listed, image) {
					t.Errorf("%s runs %s, which is not listed", name, image)
				}
			}
		}
		if n < 40 {
			t.Errorf("only %d images were looked for", n)
		}
	}
}

// A compute node runs the agents, a controller the services, every node the pod network. Unknown images may run anywhere.
func TestImageRoles(t *testing.T) {
	roles, err := imageRoles()
	require.NoError(t, err)
	for name, want := range map[string][]string{
		"keystone": {"controller"}, "region": {"controller"}, "web": {"controller"}, "s3gateway": {"controller"}, "mariadb": {"controller"},
		"host": {"host"}, "sdnagent": {"host"}, "host-deployer": {"controller", "host"}, "lbagent": {"lbagent"}, "baremetal-agent": {"baremetal"},
		"glance": nil, "telegraf": nil, "busybox": nil, "flannel": nil,
	} {
		if got := roles[name]; !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s runs on nodes with %v, want %v", name, got, want)
		}
	}
}

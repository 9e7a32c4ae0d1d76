// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/preflight"
)

func TestRunsHere(t *testing.T) {
	roles := map[string][]string{"keystone": {"controller"}, "host": {"host"}, "host-deployer": {"controller", "host"}, "lbagent": {"lbagent"}, "busybox": nil}
	compute := config.Node{EnableHostAgent: true}
	for _, tt := range []struct {
		image string
		node  config.Node
		want  bool
	}{
		{"registry.example.org:5000/cloud/keystone:v4", compute, false},
		{"registry.example.org/host@sha256:abc", compute, true},
		{"registry.example.org/host-deployer:v4", compute, true},
		{"registry.example.org/host-deployer:v4", config.Node{}, false},
		{"registry.example.org/keystone:v4", config.Node{AsController: true}, true},
		{"registry.example.org/lbagent:v4", config.Node{Labels: []string{"onecloud.yunion.io/lbagent=enable"}}, true},
		{"registry.example.org/lbagent:v4", compute, false},
		{"registry.example.org/busybox:1", config.Node{}, true},
		{"registry.example.org/new-in-a-later-release:v5", config.Node{}, true},
	} {
		c := &config.Config{Node: tt.node, Cloud: config.Cloud{ImageRoles: roles}}
		if got := runsHere(c, tt.image); got != tt.want {
			t.Errorf("%s on %+v: %v", tt.image, tt.node, got)
		}
	}
	// init knows no roles: all that the bundle has is imported.
	if !runsHere(&config.Config{}, "registry.example.org/host:v4") {
		t.Error("init leaves an image out")
	}
}

// A bundle is refused before anything is changed if it lacks an image that a later phase imports.
func TestPreflightAsksForEveryImage(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"defaults":             func(*config.Config) {},
		"a database of theirs": func(c *config.Config) { c.Database.Host = "10.0.0.5" },
		"nothing of ours":      func(c *config.Config) { c.Addons.CNI, c.Addons.Ingress = "none", "none" },
		"a registry of theirs": func(c *config.Config) { c.Cluster.ImageRepository = "registry.example.org/cloud" },
		"another operator":     func(c *config.Config) { c.Cloud.OperatorVersion = "v9" },
	} {
		t.Run(name, func(t *testing.T) {
			c := config.Default()
			change(&c)
			config.Complete(&c, config.Machine{Hostname: "node", Address: "192.0.2.7"})
			c.Cloud.Images = []string{"registry.example.org/keystone:v4.0.4"}
			h := &host.Host{Config: &c}
			for kind, groups := range map[preflight.Kind][]node.ImageGroup{
				preflight.Init: {imagesOfControlPlane(), imagesOfAddons(), imagesOfTheCloud(), otherImages()},
				preflight.Join: {imagesOfWorker(), otherImages()},
			} {
				got, err := preflight.Images(&c, kind)
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				for _, g := range groups {
					need, err := g.Need(h)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, need...)
				}
				slices.Sort(want)
				if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
			}
		})
	}
}

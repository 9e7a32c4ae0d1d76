// SPDX-License-Identifier: Apache-2.0

package phases_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/preflight"
)

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
			want, err := phases.Images(&c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := preflight.Images(&c, preflight.Init)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

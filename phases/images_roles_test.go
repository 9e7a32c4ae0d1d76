// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"testing"

	"yunion.io/x/ocadm/phases/config"
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

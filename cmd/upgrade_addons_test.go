// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"slices"
	"testing"

	"yunion.io/x/ocadm/phases/addons"
)

func TestAddonLines(t *testing.T) {
	got := addonLines([]addons.Installed{
		{Name: "storage", From: []string{"local-path-provisioner:v0.0.29"}, To: []string{"local-path-provisioner:v0.0.30", "busybox:1"}, Changes: []string{"configure Deployment"}},
		{Name: "ingress", From: []string{"traefik:v3"}, To: []string{"traefik:v3"}, Changes: []string{"configure IngressClass"}},
		{Name: "cni", Left: "ocadm did not install it"},
	})
	if want := []string{"storage (local-path-provisioner v0.0.29 → v0.0.30)", "ingress (settings)"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := knownAddons([]string{"cni", "storag"}); err == nil {
		t.Error("a name that no addon has was accepted")
	}
}

// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// The program ends at a directive or property that it does not know. Cloudpods, cmd/region-dns/main.go and pkg/dns/setup.go, v3.8.17 to v3.10.16 and
// v3.11.0 to v4.0.4-rc.6.
func TestWordsOfRegionDNS(t *testing.T) {
	old := []string{"errors", "cache", "yunion", "forward", "max_fails", "dns_domain", "sql_connection", "auth_url", "admin_project", "admin_user",
		"admin_password", "region", "fallthrough"}
	words := map[string][]string{"v3.9.16": old, "v3.10.16": old}
	for _, release := range []string{"v3.11.0", "v3.11.14", "v4.0.3"} {
		words[release] = append(slices.Clone(old), "reload", "admin_domain", "in_cloud_only")
	}
	for release, known := range words {
		cr := cloudOf(t, "testdata/choices/cr.yaml")
		cr.Spec.Version = release
		cr.Spec.RegionDNS.Disable, cr.Spec.RegionDNS.InCloudOnly = new(false), true
		cluster := described(t, cr)
		in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
		o, err := render.Component(cluster.Components["region-dns"], in)
		require.NoError(t, err)
		text := string(o.Secrets[0].(*corev1.Secret).Data["region-dns.conf"])
		for line := range strings.Lines(text) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if word != ".:53" && word != "}" && !slices.Contains(known, word) {
				t.Errorf("release %s does not know %q", release, word)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"slices"
	"strings"
	"testing"

	ocadm "yunion.io/x/ocadm/internal/version"
)

// A release runs its own components, without later or removed ones; a name that is no release counts as the newest.
func TestComponentsOfARelease(t *testing.T) {
	for version, want := range map[string]struct{ lacks, runs string }{
		"v3.1.1": {
			lacks: "aiproxy cloudid cloudmon cloudproxy etcd host-health host-image host-ovn-controller host-ovs-vswitchd host-ovsdb-server host-sdnagent " +
				"lbagent llm mcp-server scheduledtask telegraf victoria-metrics",
			runs: "ansibleserver apigateway glance host host-deployer influxdb keystone monitor ovn-north region region-dns scheduler web",
		},
		"v3.8.17":           {lacks: "scheduledtask victoria-metrics llm", runs: "influxdb telegraf cloudproxy host-image etcd"},
		"v3.10.16":          {lacks: "llm host-sdnagent", runs: "influxdb victoria-metrics lbagent host-health scheduledtask"},
		"v3.11.14":          {lacks: "influxdb llm host-ovs-vswitchd aiproxy", runs: "victoria-metrics host-health lbagent"},
		"v4.0.3":            {lacks: "influxdb aiproxy", runs: "llm mcp-server host-ovs-vswitchd host-sdnagent"},
		"v4.0.4-20260716.0": {lacks: "influxdb", runs: "aiproxy"},
		"latest":            {lacks: "influxdb", runs: "aiproxy llm"},
		"lzx-dev":           {lacks: "influxdb", runs: "aiproxy llm"},
	} {
		c := resolved(t, settings{version: version}.cloud(), facts())
		for _, name := range strings.Fields(want.lacks) {
			if r := c.Components[name]; r.Enabled || !strings.Contains(r.DisabledReason, "not in release "+version) || r.Visible {
				t.Errorf("%s: %s is enabled=%v visible=%v, because %q", version, name, r.Enabled, r.Visible, r.DisabledReason)
			}
		}
		for _, name := range strings.Fields(want.runs) {
			if r := c.Components[name]; !r.Enabled {
				t.Errorf("%s: %s is off: %s", version, name, r.DisabledReason)
			}
		}
	}
}

// Third-party images have the tag of the release, in the other containers too.
func TestThirdPartyTagsOfARelease(t *testing.T) {
	for version, want := range map[string]map[string]string{
		"v3.4.16": {"telegraf": "telegraf:release-1.5.2", "telegraf/telegraf-init": "telegraf-init:release-1.5.2", "host-image": "host-image:v1.0.1",
			"ovn-north": "openvswitch:2.10.4-0", "host/sdnagent": "sdnagent:v3.4.16", "host/ovn-controller": "openvswitch:2.10.4-0", "influxdb": "influxdb:1.7.7"},
		"v3.11.14": {"etcd": "etcd:3.4.6", "victoria-metrics": "victoria-metrics:v1.95.1", "webconsole/guacd": "guacd:1.5.3",
			"telegraf": "telegraf:release-1.19.2-10", "host-health": "host-health:v0.0.3", "host/ovn-controller": "openvswitch:2.12.4-2"},
		"v4.0.3": {"etcd": "etcd:3.5.12", "victoria-metrics": "victoria-metrics:v1.129.1-1", "host-health": "host-health:v0.0.4",
			"host/sdnagent": "", "host/ovn-controller": "", "webconsole/guacd": "guacd:1.6.0"},
	} {
		c := resolved(t, settings{version: version}.cloud(), facts())
		for name, image := range want {
			name, sub, isSub := strings.Cut(name, "/")
			got := c.Components[name].FullImage
			if isSub {
				got = c.Components[name].ContainerImages[sub]
			}
			if got[strings.LastIndex(got, "/")+1:] != image {
				t.Errorf("%s: %s %s runs %q, want %q", version, name, sub, got, image)
			}
		}
	}
}

// Every release in use has what it needs to start: the dependencies of a component are part of the release, or off.
func TestNothingWaitsForWhatAReleaseLacks(t *testing.T) {
	newest := []string{"v3.1.8", "v3.4.16", "v3.6.22", "v3.7.10", "v3.8.17", "v3.9.16", "v3.10.16", "v3.11.14", "v4.0.3"}
	var lines []string
	for _, v := range newest {
		lines = append(lines, v[:strings.LastIndex(v, ".")])
	}
	if !slices.Equal(lines, ocadm.CloudReleases()) {
		t.Errorf("releases of the lines %v are tested, and %v are said to be supported", lines, ocadm.CloudReleases())
	}
	for _, version := range append(newest, "v4.0.2") {
		c := resolved(t, settings{version: version}.cloud(), facts())
		metrics := 0
		for name, r := range c.Components {
			if !r.Enabled {
				continue
			}
			if slices.Contains([]string{"victoria-metrics", "influxdb"}, name) {
				metrics++
			}
			if r.Workload.Kind != "None" && r.Problem != "" {
				t.Errorf("%s: %s: %s", version, name, r.Problem)
			}
		}
		if metrics == 0 {
			t.Errorf("%s has no time series database: monitor ends without one", version)
		}
	}
}

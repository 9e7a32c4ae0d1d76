// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// A pod has a Kubernetes token if and only if its component has its own service account.
func TestOnlyPodsWithAnAccountHaveAToken(t *testing.T) {
	var with []string
	cluster := resolved(t, "testdata/choices/cr.yaml")
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	for _, name := range slices.Sorted(maps.Keys(cluster.Components)) {
		o, err := render.Component(cluster.Components[name], in)
		require.NoError(t, err)
		pod := podOf(o.Workload)
		if pod == nil {
			continue
		}
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken != (pod.ServiceAccountName != "") {
			t.Errorf("%s: account %q, mounts a token: %v", name, pod.ServiceAccountName, pod.AutomountServiceAccountToken)
		}
		if pod.ServiceAccountName != "" {
			with = append(with, name)
		}
	}
	want := []string{"autoupdate", "backup", "kubeserver", "onecloud-service-operator", "region", "telegraf", "yunionagent"}
	if !slices.Equal(with, want) {
		t.Errorf("%v have an account, want %v", with, want)
	}
}

// The databases of OVN and VictoriaMetrics require no password. Without node ports, the agents still reach them by their Services.
func TestPortsWithoutAuthenticationCanBeClosed(t *testing.T) {
	cr := cloudOf(t, "testdata/ce/cr.yaml")
	cr.Spec.OvnNorth.NorthService.InternalOnly = true
	cr.Spec.VictoriaMetrics.Service.InternalOnly = true
	cluster := described(t, cr)
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	for name, ports := range map[string][]int32{"ovn-north": {32241, 32242}, "victoria-metrics": {30428}} {
		o, err := render.Component(cluster.Components[name], in)
		require.NoError(t, err)
		s := o.Services[0].(*corev1.Service)
		for i, p := range s.Spec.Ports {
			if s.Spec.Type != corev1.ServiceTypeClusterIP || p.NodePort != 0 || p.Port != ports[i] {
				t.Errorf("%s: %s %+v", name, s.Spec.Type, p)
			}
		}
	}
	o, err := render.Component(cluster.Components["host"], in)
	require.NoError(t, err)
	for _, e := range podOf(o.Workload).Containers[0].Env {
		if e.Name == "HOST_OVN_SOUTH_DATABASE" && e.Value != "tcp:default-ovn-north:32242" {
			t.Errorf("host asks %s", e.Value)
		}
	}
}

// Capabilities without which a program fails: dropbear in climc sets the user and groups of each shell of the console and listens on port 22
// (build/climc/root/opt/climc-entrypoint.sh and pkg/mcclient/modules/webconsole of Cloudpods), and cloudmon and region ping
// (pkg/cloudmon/misc/pingutils.go, pkg/compute/models/host_health.go).
func TestProgramsHaveTheirCapabilities(t *testing.T) {
	cluster := resolved(t, "testdata/ce/cr.yaml")
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	for name, needs := range map[string][]corev1.Capability{
		"climc": {"SETUID", "SETGID", "CHOWN", "NET_BIND_SERVICE"}, "cloudmon": {"NET_RAW"}, "region": {"NET_RAW"},
	} {
		o, err := render.Component(cluster.Components[name], in)
		require.NoError(t, err)
		has := podOf(o.Workload).Containers[0].SecurityContext.Capabilities
		for _, c := range needs {
			if has != nil && slices.Contains(has.Drop, "ALL") && !slices.Contains(has.Add, c) {
				t.Errorf("%s lacks the capability %s", name, c)
			}
		}
	}
}

// The RAID plugin ends without NODENAME (cmd/telegraf-raid-plugin/main.go of Cloudpods), its image has no command (build/docker), and it queries
// controllers through their devices.
func TestRAIDPluginOfTelegraf(t *testing.T) {
	cluster := resolved(t, "testdata/choices/cr.yaml")
	o, err := render.Component(cluster.Components["telegraf"], component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
	require.NoError(t, err)
	pod := podOf(o.Workload)
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "telegraf-raid-plugin" })
	if i < 0 {
		t.Fatal("there is none")
	}
	c := pod.Containers[i]
	named := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "NODENAME" && e.ValueFrom != nil })
	if p := c.SecurityContext.Privileged; !named || p == nil || !*p || !slices.Equal(c.Command, []string{"/opt/yunion/bin/telegraf-raid-plugin"}) {
		t.Errorf("command %q, variables %v, rights %v", c.Command, c.Env, c.SecurityContext)
	}
}

// The host agent writes telegraf's configuration on its node in this directory (pkg/hostman/system_service/telegraf.go of Cloudpods); there,
// telegraf-init waits for it.
func TestHostWritesWhereTelegrafReads(t *testing.T) {
	for file, dir := range map[string]string{"testdata/ce/cr.yaml": "/etc/telegraf", "testdata/choices/cr.yaml": "/opt/telegraf"} {
		cluster := resolved(t, file)
		in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
		var got []string
		for _, name := range []string{"host", "telegraf"} {
			o, err := render.Component(cluster.Components[name], in)
			require.NoError(t, err)
			pod := podOf(o.Workload)
			for _, e := range pod.Containers[0].Env {
				if e.Name == "HOST_TELEGRAF_CONFIG_DIR" {
					got = append(got, e.Value)
				}
			}
			for _, v := range pod.Volumes {
				if v.Name == "etc-telegraf" {
					got = append(got, v.HostPath.Path)
				}
			}
		}
		if !slices.Equal(got, []string{dir, dir}) {
			t.Errorf("%s: host writes to and telegraf reads from %q", file, got)
		}
	}
}

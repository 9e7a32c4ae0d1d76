// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// telegraf collects metrics on every node. Its configuration comes from the host agent on a compute node, elsewhere from telegraf-init.
func telegraf() component.Component {
	return component.Component{
		Name: "telegraf", SpecKey: "telegraf", Summary: "collects metrics of the nodes",
		Releases: component.Releases{First: "v3.3.0"},
		Products: withHosts,
		After:    timeSeries(),
		Image: component.Image{Tag: "release-1.36.4-6", Older: []component.OlderTag{
			{Until: "v3.4", Tag: "release-1.5.2"}, {Until: "v3.7", Tag: "release-1.5.3"}, {Until: "v3.8", Tag: "release-1.19.2-1"},
			{Until: "v3.10", Tag: "release-1.19.2-4"}, {Until: "v3.11", Tag: "release-1.19.2-10"},
		}},
		Workload: component.Workload{
			Kind: component.DaemonSet, NodeRole: "any", Privileged: true, HostNetwork: true, NoCerts: true, MaxUnavailable: 20,
			ServiceAccount: nodeReader,
			Command:        []string{}, Env: telegrafEnv,
			Args: []string{"/usr/bin/telegraf", "-config", "/etc/telegraf/telegraf.conf", "-config-directory", "/etc/telegraf/telegraf.d"},
			Mounts: []component.Mount{
				dir("etc-telegraf", "/etc/telegraf"),
				{Name: "root", Path: "/hostfs", HostPath: "/", HostPathType: corev1.HostPathDirectory, ReadOnly: true},
			},
			Sidecars: telegrafSidecars(),
		},
		Adapt: adaptTelegraf,
	}
}

func telegrafSidecars() []component.Sidecar {
	return []component.Sidecar{
		{
			Name: "telegraf-init", Init: true, Mounts: true, Command: []string{"/bin/telegraf-init"}, Env: telegrafInitEnv,
			Image: component.Image{Name: "telegraf-init", Tag: "release-1.36-1", Older: []component.OlderTag{
				{Until: "v3.7", Tag: "release-1.5.2"}, {Until: "v3.11", Tag: "release-1.19.2-0"},
			}},
		},
		{
			// It ends without the name of its node. Its image has no command, and the programs of RAID controllers need their devices.
			Name: "telegraf-raid-plugin", SpecKey: "telegraf.TelegrafRaid", Mounts: true, Privileged: true,
			Command: []string{"/opt/yunion/bin/telegraf-raid-plugin"}, Env: onNodeEnv,
			Image: component.Image{Tag: "v4.0-20260115.0", Older: []component.OlderTag{
				{Until: "v3.4", Tag: "release-1.5.2"}, {Until: "v3.7", Tag: "release-1.6.3"}, {Until: "v3.8", Tag: "release-1.6.4"}, {Until: "v3.10", Tag: "release-1.6.5"},
			}},
			When: func(s component.Spec) bool { return s.Telegraf.EnableRaidPlugin },
		},
	}
}

func telegrafEnv(component.Inputs) []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: "HOST_MOUNT_PREFIX", Value: "/hostfs"}}
	for _, dir := range []string{"etc", "proc", "sys", "var", "run"} {
		env = append(env, corev1.EnvVar{Name: "HOST_" + strings.ToUpper(dir), Value: "/hostfs/" + dir})
	}
	return env
}

func telegrafInitEnv(in component.Inputs) []corev1.EnvVar {
	return append(onNodeEnv(in), corev1.EnvVar{Name: "INFLUXDB_URL", Value: in.Cluster.URL(timeSeriesOf(in.Cluster), "", "")})
}

// onNodeEnv returns a variable with the name of the pod's node.
func onNodeEnv(component.Inputs) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "NODENAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}},
	}
}

// adaptTelegraf reads the configuration from another directory of the node if the spec sets one.
func adaptTelegraf(o *component.Objects, in component.Inputs) error {
	pod, _ := component.PodOf(o.Workload)
	if dir := in.Cluster.Spec.Telegraf.TelegrafConfigDir; dir != "" {
		for i := range pod.Volumes {
			if pod.Volumes[i].Name == "etc-telegraf" {
				pod.Volumes[i].HostPath.Path = dir
			}
		}
	}
	return nil
}

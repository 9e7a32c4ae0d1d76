// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/templates/nodefiles"
)

// host is the agent of a compute node. Its configuration and account also serve the other agents there, and host-deployer on other nodes.
func host() component.Component {
	return component.Component{
		Name: "host", SpecKey: "hostagent", EarlierSection: "host", Summary: "runs virtual machines on a compute node",
		After:    []string{"keystone", "region", "host-ovs-vswitchd"},
		Image:    component.Image{Hyper: true},
		Workload: hostAgent("host", hostWorkload),
		Config:   &component.Config{Groups: noDatabase, NotStored: true, File: "common.conf", Dir: hostConfDir, Options: hostOptions, Secrets: minioSecret, Files: hostFiles},
		Account:  &component.Account{User: "hostadmin"},
		Register: []component.CatalogService{{Name: "host", Type: "host"}},
	}
}

func hostWorkload(w *component.Workload) {
	w.Products, w.PodLabels = withHosts, map[string]string{"onecloud.yunion.io/host-deployer": ""}
	w.Env, w.WorkingDir, w.GracePeriod = hostEnv, "/opt/cloud", 300
	w.Sidecars = append(beforeTheSplit(), fileOnNode("host", "host.conf"))
	w.Probe, w.StartSeconds = httpsGet("/ping", 8885, 5), 3000
}

func hostFiles(component.Inputs) map[string]string {
	return map[string]string{"host.conf": nodefiles.Host}
}

func hostOptions(in component.Inputs) map[string]any {
	s := in.Cluster.Spec.Hostagent
	o := map[string]any{
		"port":                     8885,
		"enable_remote_executor":   true,
		"disable_security_group":   s.DisableSecurityGroup,
		"manage_ntp_configuration": s.ManageNtpConfiguration,
		"host_cpu_passthrough":     s.HostCPUPassthrough == nil || *s.HostCPUPassthrough,
		"default_qemu_version":     cmp.Or(s.DefaultQemuVersion, qemuVersion(in.Cluster.Version)),
		"disable_local_vpc":        localVPC(*in.Cluster.Spec) != "",
	}
	maps.Copy(o, minioOptions(in))
	return o
}

// qemuVersion returns the QEMU version that a release's hosts include.
func qemuVersion(release string) string {
	if component.Before(release, "v4.0.0") {
		return "4.2.0"
	}
	return "10.0.7"
}

// agentsSplit is the release in which the agents of a compute node became DaemonSets of their own, and Open vSwitch a container.
const agentsSplit = "v4.0.2"

// beforeTheSplit returns the containers of the host's pod in earlier releases. There, Open vSwitch itself ran directly on the node.
func beforeTheSplit() []component.Sidecar {
	return []component.Sidecar{
		{
			Name: "ovn-controller", SpecKey: "hostagent.OvnController", Image: openvswitchImage, Command: []string{"/start.sh", "controller"},
			Mounts: true, Privileged: true,
			When: func(s component.Spec) bool { return component.Before(s.Version, agentsSplit) && localVPC(s) == "" },
		},
		{
			Name: "sdnagent", SpecKey: "hostagent.SdnAgent", Image: component.Image{Name: "sdnagent", Hyper: true}, Mounts: true, Privileged: true,
			Command: []string{"/opt/yunion/bin/sdnagent", "--common-config-file", hostConf},
			When:    func(s component.Spec) bool { return component.Before(s.Version, agentsSplit) },
		},
	}
}

func hostEnv(in component.Inputs) []corev1.EnvVar {
	return append(ovnEnv(in),
		corev1.EnvVar{Name: "HOST_SYSTEM_SERVICES_OFF", Value: "host-deployer,host_sdnagent,telegraf"},
		corev1.EnvVar{Name: "HOST_TELEGRAF_CONFIG_DIR", Value: cmp.Or(in.Cluster.Spec.Telegraf.TelegrafConfigDir, "/etc/telegraf")})
}

// ovnEnv returns the variables with which an agent finds the networks of servers.
func ovnEnv(in component.Inputs) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "HOST_OVN_SOUTH_DATABASE", Value: ovnAddress(in, "south-db")},
		{Name: "HOST_OVN_ENCAP_IP_DETECTION_METHOD", Value: in.Cluster.Spec.Hostagent.OvnEncapIPDetectionMethod},
		{Name: "OVN_CONTAINER_IMAGE_TAG", Value: openvswitchImage.TagFor(in.Cluster.Version)},
	}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// esxiAgent moves disks between the image service and ESXi hosts, one per zone. It needs host-deployer on its node.
func esxiAgent() component.Component {
	return component.Component{
		Name: "esxi-agent", SpecKey: "esxiagent", StatusKey: "esxiagent", Summary: "manages disks of ESXi hosts",
		Single:   "a zone has one agent",
		Products: withoutAI,
		After:    []string{"keystone", "region"},
		Image:    component.Image{Hyper: true},
		Workload: component.Workload{
			Privileged: true, PerZone: true, Listens: true,
			Ports:     []corev1.ContainerPort{{Name: "api", ContainerPort: 30883, Protocol: corev1.ProtocolTCP}},
			PodLabels: map[string]string{"onecloud.yunion.io/host-deployer": ""},
			Mounts: []component.Mount{
				{Name: "opt-cloud", Path: "/opt/cloud", HostPath: "/opt/cloud", HostPathType: corev1.HostPathDirectoryOrCreate, Bidirectional: true},
				{Name: "run", Path: "/var/run", HostPath: "/var/run", HostPathType: corev1.HostPathDirectory},
			},
		},
		Config: &component.Config{Groups: noDatabase, NotStored: true, Options: func(in component.Inputs) map[string]any {
			return map[string]any{"port": 30883, "zone": in.Cluster.Zone, "listen_interface": "eth0"}
		}},
		Account: &component.Account{User: "esxiagent"},
	}
}

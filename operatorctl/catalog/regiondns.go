// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// regionDNS answers on port 53 of the controller nodes. It is CoreDNS with a plugin that reads region's database.
func regionDNS() component.Component {
	return component.Component{
		Name: "region-dns", SpecKey: "regionDNS", Summary: "DNS names of virtual machines",
		After: []string{"keystone", "region"},
		Workload: component.Workload{
			Kind: component.DaemonSet, HostNetwork: true,
			Command: []string{"/opt/yunion/bin/region-dns", "-conf", "/etc/yunion/region-dns.conf"},
			Security: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
			},
		},
		Config:  &component.Config{Sealed: "region-dns.conf.tmpl", AccountOf: "region"},
		Service: &component.Service{Headless: true},
	}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

func cloudmon() component.Component {
	return service(30931, component.Component{
		Name: "cloudmon", Summary: "collects metrics of other clouds",
		Single:   "each copy would collect every metric",
		Releases: component.Releases{First: "v3.3.0"},
		Products: withoutAI,
		After:    append(timeSeries(), "keystone"),
		Image:    component.Image{EE: "cloudmon-ee", EEFor: eeOnly, Hyper: true},
		Workload: component.Workload{Security: pings()},
		Config:   &component.Config{Groups: noDatabase},
		Account:  &component.Account{User: "cloudmon"},
	})
}

// pings allows raw sockets: it pings the addresses of the cloud's networks, by default before v4.0.
func pings() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}},
	}
}

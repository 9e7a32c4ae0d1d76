// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// cloudmon also pings the addresses of the cloud's networks, by default before v4.0.
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

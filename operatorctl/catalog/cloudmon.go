// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudmon() component.Component {
	return component.Component{
		Name: "cloudmon", SpecKey: "cloudmon", StatusKey: "cloudmon", Summary: "collects metrics of other clouds",
		Releases:  component.Releases{First: "v3.3.0"},
		Products:  withoutAI,
		After:     append(timeSeries(), "keystone"),
		Image:     component.Image{EE: "cloudmon-ee", EEFor: eeOnly, Hyper: true},
		Workload:  component.Workload{Ping: true},
		Config:    &component.Config{Groups: noDatabase},
		Account:   &component.Account{User: "cloudmon"},
		Service:   apiPort(30931),
		Endpoints: []component.Endpoint{{Service: "cloudmon", Type: "cloudmon"}},
	}
}

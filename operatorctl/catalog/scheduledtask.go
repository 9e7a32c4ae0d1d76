// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// scheduledtask lives in region's database with region's account.
func scheduledtask() component.Component {
	return component.Component{
		Name: "scheduledtask", SpecKey: "scheduledtask", StatusKey: "scheduledtask", Summary: "scheduled tasks and scaling groups",
		Releases:  component.Releases{First: "v3.9.0"},
		Products:  withAI,
		After:     []string{"keystone", "region"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{Ping: true},
		Config:    &component.Config{Groups: withClickHouse, AccountOf: "region", Options: syncTables},
		Service:   apiPort(30978),
		Endpoints: []component.Endpoint{{Service: "scheduledtask", Type: "scheduledtask"}},
	}
}

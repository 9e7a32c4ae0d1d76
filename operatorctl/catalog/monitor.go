// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// monitor ends when it finds no time series database in the catalogue.
func monitor() component.Component {
	return component.Component{
		Name: "monitor", SpecKey: "monitor", StatusKey: "monitor", Summary: "metrics and alerts",
		After:     append(timeSeries(), "keystone"),
		Image:     component.Image{EE: "monitor-ee", EEFor: eeOnly, Hyper: true},
		Workload:  component.Workload{Ping: true},
		Config:    &component.Config{Groups: withClickHouse, Options: syncTables},
		Database:  &component.Database{Name: "monitor", User: "yunionmonitor"},
		Account:   &component.Account{User: "monitoradmin"},
		Service:   apiPort(30093),
		Endpoints: []component.Endpoint{{Service: "monitor", Type: "monitor"}},
		Setup:     []string{"monitor-alerts"},
	}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// monitor exits if it finds no time series database in the catalog.
func monitor() component.Component {
	return service(30093, component.Component{
		Name: "monitor", Summary: "metrics and alerts",
		Single:   "each copy would evaluate and send every alert",
		After:    append(timeSeries(), "keystone"),
		Image:    component.Image{EE: "monitor-ee", EEFor: eeOnly, Hyper: true},
		Config:   &component.Config{Groups: withClickHouse, Options: syncTables},
		Database: &component.Database{Name: "monitor", User: "yunionmonitor"},
		Account:  &component.Account{User: "monitoradmin"},
		Setup:    []string{"monitor-alerts"},
	})
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// scheduledtask uses region's database with region's account.
func scheduledtask() component.Component {
	return service(30978, component.Component{
		Name: "scheduledtask", Summary: "scheduled tasks and scaling groups",
		Single:   "each copy would run every task",
		Releases: component.Releases{First: "v3.9.0"},
		Products: withAI,
		After:    []string{"keystone", "region"},
		Config:   &component.Config{Groups: withClickHouse, AccountOf: "region", Options: syncTables},
	})
}

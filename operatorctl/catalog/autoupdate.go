// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func autoupdate() component.Component {
	return service(30981, component.Component{
		Name: "autoupdate", Summary: "checks for new releases",
		Single:   closedSource,
		Editions: eeOnly,
		Workload: component.Workload{DBInit: true, Listens: true, ServiceAccount: cloudEditor},
		Config:   &component.Config{Groups: withClickHouse, Options: autoupdateOptions},
		Database: &component.Database{Name: "autoupdate"},
		Account:  &component.Account{User: "autoupdate"},
	})
}

func autoupdateOptions(component.Inputs) map[string]any {
	return map[string]any{
		"update_server": "https://iso.yunion.cn", "channel": "stable", "kubernetes_mode": true, "update_check_interval_hours": 1,
		"host_update_start_hour": 2, "host_update_stop_hour": 4, "host_update_time_zone": "Asia/Shanghai",
	}
}

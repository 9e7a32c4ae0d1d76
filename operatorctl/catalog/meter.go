// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func meter() component.Component {
	return service(30909, component.Component{
		Name: "meter", Summary: "metering of resource usage",
		Single:   closedSource,
		Editions: eeOnly,
		Products: withoutAI,
		After:    append(timeSeries(), "keystone"),
		Workload: component.Workload{DBInit: true, ReadReplicas: true},
		Config:   &component.Config{Groups: withClickHouse, Options: meterOptions},
		Database: &component.Database{Name: "yunionmeter"},
		Account:  &component.Account{User: "meterdocker"},
	})
}

func meterOptions(component.Inputs) map[string]any {
	return map[string]any{
		"auto_sync_table":           true,
		"billing_file_directory":    "/opt/yunion/meter/billing",
		"cloudrates_file_directory": "/opt/yunion/meter/rates",
		"aws_ri_plan_id_handle":     "true",
		"influxdb_meter_name":       "meter_db",
		"monthly_bill":              true,
	}
}

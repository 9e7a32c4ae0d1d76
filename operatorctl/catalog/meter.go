// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func meter() component.Component {
	return component.Component{
		Name: "meter", SpecKey: "meter", StatusKey: "meter", Summary: "metering of resource usage",
		Editions:  eeOnly,
		Products:  withoutAI,
		After:     append(timeSeries(), "keystone"),
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{DBInit: true, Ping: true, ReadReplicas: true},
		Config:    &component.Config{Groups: withClickHouse, Options: meterOptions},
		Database:  &component.Database{Name: "yunionmeter"},
		Account:   &component.Account{User: "meterdocker"},
		Service:   apiPort(30909),
		Endpoints: []component.Endpoint{{Service: "meter", Type: "meter"}},
	}
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

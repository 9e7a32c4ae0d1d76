// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// influxdb holds the metrics of clouds before v3.11. Their services write to it while it is registered.
func influxdb() component.Component {
	return component.Component{
		Name: "influxdb", SpecKey: "influxdb", Summary: "time series database of releases before v3.11",
		Single:   ownVolume,
		Releases: component.Releases{Last: "v3.10"},
		Products: withoutAI,
		After:    []string{"keystone"},
		Image:    component.Image{Tag: "1.7.7"},
		Workload: component.Workload{
			Recreate: true, NodeRole: "any", // its volume determines the node
			Command: []string{"influxd", "-config", "/etc/yunion/influxdb.conf"}, Listens: true,
			Mounts: []component.Mount{{Name: "data", Path: "/var/lib/influxdb", Storage: true}},
		},
		Config:    &component.Config{Plain: "influxdb.conf.tmpl"},
		Service:   &component.Service{Ports: []component.Port{{Name: "api", Port: 30086, TargetPort: 30086, SpecKey: "service.nodePort"}}},
		Endpoints: []component.Endpoint{{Service: "influxdb", Type: "influxdb"}},
		Storage:   &component.Storage{Size: "20G"},
	}
}

// timeSeries lists the databases for metrics. A release has one of them, or both during the move from influxdb.
func timeSeries() []string { return []string{"victoria-metrics", "influxdb"} }

// timeSeriesOf returns the database to which a cloud's agents write: influxdb where it runs, because the services of those releases read from it.
func timeSeriesOf(c component.Cluster) string {
	if c.Runs("influxdb") {
		return "influxdb"
	}
	return "victoria-metrics"
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// monitorStackName is the component's name; aiproxy checks whether it runs.
const monitorStackName = "monitor-stack"

// monitorStack is Grafana, Loki and, if wanted, Prometheus and Thanos on an object store. kubeserver installs it in a separate namespace; the operator
// creates Grafana's database and requests the rest. The earlier operator did so by default. The object store alone claims a terabyte, so here it takes
// spec.monitorStack.disable: false.
func monitorStack() component.Component {
	return component.Component{
		Name: monitorStackName, EarlierSection: "grafana", Summary: "Grafana, Loki, Prometheus and Thanos, installed by kubeserver",
		Releases: component.Releases{First: "v3.8.0"},
		Products: withAI,
		Gate: func(s component.Spec) string {
			return unless(s.MonitorStack.Disable != nil && !*s.MonitorStack.Disable, "spec.monitorStack.disable is not false")
		},
		After:       []string{"keystone", "kubeserver"},
		Workload:    component.Workload{Kind: component.NoWorkload},
		Database:    &component.Database{Name: "grafana"},
		Credentials: []string{component.MonitorMinioSecretKey, component.GrafanaPassword},
		Setup:       []string{"monitor-stack"},
	}
}

// monitorMinio is the object store of the monitoring stack.
const monitorMinio = "monitor-minio.onecloud-monitoring.svc:9000"

func monitorMinioKey(in component.Inputs) string {
	return component.MonitorStack(in.Cluster.Spec).AccessKey()
}

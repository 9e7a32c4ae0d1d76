// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// monitorStackName is the component below; aiproxy asks whether it runs.
const monitorStackName = "monitor-stack"

// monitorStack is Grafana, Loki and, if wanted, Prometheus and Thanos over an object store. kubeserver installs it, in a namespace of its
// own; the operator makes Grafana's database and asks for the rest. The earlier operator did so by default; the object store
// alone claims a terabyte, so here it is asked for by spec.monitorStack.disable: false.
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

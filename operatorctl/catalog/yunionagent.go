// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

var agentCommand = []string{"/opt/yunion/bin/yunionagent", "--config", "/etc/yunion/yunionagent.conf"}

// yunionagent identifies the machines on which it runs.
func yunionagent() component.Component {
	return component.Component{
		Name: "yunionagent", SpecKey: "yunionagent", Summary: "licence and platform settings",
		Editions: eeSupport,
		After:    []string{"keystone"},
		Image:    component.Image{EEFor: []component.Edition{component.CESupport}, Hyper: true},
		Workload: component.Workload{
			Kind: component.DaemonSet, HostNetwork: true, HostNamespaces: true, ServiceAccount: clusterAdmin, Security: usualRights(),
			Command: agentCommand, EECommand: append(agentCommand[:3:3], "--edition", "ce/support"),
		},
		Config:   &component.Config{Groups: apiGroups, Options: syncTables},
		Database: &component.Database{Name: "yunionagent"},
		Account:  &component.Account{User: "yunionagent"},
		Service: &component.Service{
			Headless: true, Ports: []component.Port{{Name: "api", Port: 30898, SpecKey: "service.nodePort"}},
		},
		Endpoints: []component.Endpoint{{Service: "yunionagent", Type: "yunionagent"}},
	}
}

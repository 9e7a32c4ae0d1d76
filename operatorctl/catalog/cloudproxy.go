// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudproxy() component.Component {
	return component.Component{
		Name: "cloudproxy", SpecKey: "cloudproxy", StatusKey: "cloudproxy", Summary: "proxies to machines in other networks",
		Releases:  component.Releases{First: "v3.7.0"},
		Products:  withoutAI,
		After:     []string{"keystone"},
		Workload:  component.Workload{ContainerName: "server", Ping: true},
		Config:    &component.Config{Groups: apiGroups, Options: cloudproxyOptions},
		Database:  &component.Database{Name: "yunioncloudproxy"},
		Account:   &component.Account{User: "cloudproxyadmin"},
		Service:   apiPort(30882),
		Endpoints: []component.Endpoint{{Service: "cloudproxy", Type: "cloudproxy"}},
		Setup:     []string{"cloudproxy-agent"},
	}
}

func cloudproxyOptions(component.Inputs) map[string]any {
	return map[string]any{"auto_sync_table": true, "enable_proxy_agent": true, "proxy_agent_id": "proxyagent0"}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudproxy() component.Component {
	return service(30882, component.Component{
		Name: "cloudproxy", Summary: "proxies to machines in other networks",
		Single:   "it runs an agent with a fixed name, which forwards its own ports",
		Releases: component.Releases{First: "v3.7.0"},
		Products: withoutAI,
		Image:    component.Image{Name: "cloudproxy"},
		Workload: component.Workload{ContainerName: "server"},
		Config:   &component.Config{Options: cloudproxyOptions},
		Database: &component.Database{Name: "yunioncloudproxy"},
		Account:  &component.Account{User: "cloudproxyadmin"},
		Setup:    []string{"cloudproxy-agent"},
	})
}

func cloudproxyOptions(component.Inputs) map[string]any {
	return map[string]any{"auto_sync_table": true, "enable_proxy_agent": true, "proxy_agent_id": "proxyagent0"}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func echartsSSR() component.Component {
	return component.Component{
		Name: "echarts-ssr", SpecKey: "echartsSSR", StatusKey: "echarts", Summary: "renders charts for reports",
		Releases: component.Releases{First: "v3.10.0"},
		Editions: eeOnly, Products: withoutAI, OffByDefault: true,
		After:     []string{"keystone"},
		Image:     component.Image{Tag: "v0.0.6", Older: []component.OlderTag{{Until: "v3.11", Tag: "v0.0.1"}}},
		Workload:  component.Workload{Command: []string{}, Listens: true, Security: usualRights()},
		Service:   &component.Service{ClusterIP: true, Ports: []component.Port{{Name: "server", Port: 8081}}},
		Endpoints: []component.Endpoint{{Service: "echarts-ssr", Type: "echarts-ssr", Scheme: "http", Interfaces: []string{"internal"}}},
	}
}

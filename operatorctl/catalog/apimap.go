// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// apimap reads region's database with region's account. The earlier operator never let it run; disable: false does.
func apimap() component.Component {
	return component.Component{
		Name: "apimap", SpecKey: "apiMap", StatusKey: "apiMap", Summary: "API routing map",
		Releases:     component.Releases{First: "v3.10.2"},
		Products:     []component.Product{component.FullStack, component.Edge},
		OffByDefault: true,
		After:        []string{"keystone", "region"},
		Image:        component.Image{Hyper: true},
		Workload:     component.Workload{Ping: true},
		Config:       &component.Config{Groups: apiGroups, AccountOf: "region"},
		Service:      apiPort(31999),
		Endpoints:    []component.Endpoint{{Service: "apimap", Type: "apimap"}},
	}
}

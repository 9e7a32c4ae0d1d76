// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func devtool() component.Component {
	return component.Component{
		Name: "devtool", SpecKey: "devtool", StatusKey: "devtool", Summary: "installs agents and tools on virtual machines",
		Products:  withAI,
		After:     []string{"keystone", "ansibleserver"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{Ping: true},
		Config:    &component.Config{Groups: apiGroups, Options: syncTables},
		Database:  &component.Database{Name: "devtool"},
		Account:   &component.Account{User: "devtooladmin"},
		Service:   apiPort(30997),
		Endpoints: []component.Endpoint{{Service: "devtool", Type: "devtool"}},
		Setup:     []string{"devtool-templates", "devtool-agent"},
	}
}

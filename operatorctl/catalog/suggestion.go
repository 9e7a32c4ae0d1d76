// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func suggestion() component.Component {
	return component.Component{
		Name: "suggestion", SpecKey: "suggestion", Summary: "cost optimisation suggestions",
		Single:    closedSource,
		Releases:  component.Releases{First: "v3.6.0"},
		Editions:  eeOnly,
		Products:  withAI,
		After:     []string{"keystone", "meter"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{Listens: true},
		Config:    &component.Config{Groups: apiGroups, Options: syncTables},
		Database:  &component.Database{Name: "suggestion"},
		Account:   &component.Account{User: "suggestion"},
		Service:   apiPort(30987),
		Endpoints: []component.Endpoint{{Service: "suggestion", Type: "suggestion"}},
	}
}

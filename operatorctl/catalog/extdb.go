// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func extdb() component.Component {
	return component.Component{
		Name: "extdb", SpecKey: "extdb", StatusKey: "extdb", Summary: "assets of external systems",
		Releases:  component.Releases{First: "v3.11.0"},
		Editions:  eeOnly,
		Products:  withoutAI,
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{Listens: true},
		Config:    &component.Config{Groups: withClickHouse, Options: syncTables},
		Database:  &component.Database{Name: "extdb"},
		Account:   &component.Account{User: "extdb"},
		Service:   apiPort(30991),
		Endpoints: []component.Endpoint{{Service: "extdb", Type: "extdb"}},
	}
}

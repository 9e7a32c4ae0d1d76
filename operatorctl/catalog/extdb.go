// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func extdb() component.Component {
	return service(30991, component.Component{
		Name: "extdb", Summary: "assets of external systems",
		Single:   closedSource,
		Releases: component.Releases{First: "v3.11.0"},
		Editions: eeOnly,
		Products: withoutAI,
		Workload: component.Workload{Listens: true},
		Config:   &component.Config{Groups: withClickHouse, Options: syncTables},
		Database: &component.Database{Name: "extdb"},
		Account:  &component.Account{User: "extdb"},
	})
}

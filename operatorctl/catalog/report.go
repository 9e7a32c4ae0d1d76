// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func report() component.Component {
	return service(30967, component.Component{
		Name: "report", Summary: "usage reports",
		Single:   closedSource,
		Releases: component.Releases{First: "v3.9.0"},
		Editions: eeOnly,
		Products: withAI,
		After:    []string{"keystone", "meter"},
		Workload: component.Workload{Listens: true},
		Config:   &component.Config{Groups: withClickHouse, Options: syncTables},
		Database: &component.Database{Name: "report"},
		Account:  &component.Account{User: "report"},
	})
}

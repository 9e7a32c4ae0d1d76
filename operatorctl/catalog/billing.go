// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func billing() component.Component {
	return service(30404, component.Component{
		Name: "billing", Summary: "bills for projects",
		Single:   closedSource,
		Releases: component.Releases{First: "v3.11.0"},
		Editions: eeOnly,
		Products: withoutAI,
		After:    []string{"keystone", "meter"},
		Workload: component.Workload{DBInit: true, Listens: true, ReadReplicas: true},
		Config:   &component.Config{Groups: withClickHouse},
		Database: &component.Database{Name: "yunionbilling"},
		Account:  &component.Account{User: "billingadmin"},
	})
}

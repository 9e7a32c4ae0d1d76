// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func billing() component.Component {
	return component.Component{
		Name: "billing", SpecKey: "billing", StatusKey: "billing", Summary: "bills for projects",
		Releases:  component.Releases{First: "v3.11.0"},
		Editions:  eeOnly,
		Products:  withoutAI,
		After:     []string{"keystone", "meter"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{DBInit: true, Listens: true, ReadReplicas: true},
		Config:    &component.Config{Groups: withClickHouse},
		Database:  &component.Database{Name: "yunionbilling"},
		Account:   &component.Account{User: "billingadmin"},
		Service:   apiPort(30404),
		Endpoints: []component.Endpoint{{Service: "billing", Type: "billing"}},
	}
}

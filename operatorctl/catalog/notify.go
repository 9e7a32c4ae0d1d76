// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func notify() component.Component {
	return component.Component{
		Name: "notify", SpecKey: "notify", StatusKey: "notify", Summary: "e-mail and messages to users",
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{DBInit: true, Ping: true, EtcdTLS: true},
		Config:    &component.Config{Groups: withClickHouse},
		Database:  &component.Database{Name: "notify"},
		Account:   &component.Account{User: "notify"},
		Service:   apiPort(30777),
		Endpoints: []component.Endpoint{{Service: "notify", Type: "notify"}},
	}
}

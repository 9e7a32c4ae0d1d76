// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func notify() component.Component {
	return service(30777, component.Component{
		Name: "notify", Summary: "e-mail and messages to users",
		Single:   "each copy would resend every failed message",
		Workload: component.Workload{DBInit: true, EtcdTLS: true},
		Config:   &component.Config{Groups: withClickHouse},
		Database: &component.Database{Name: "notify"},
		Account:  &component.Account{User: "notify"},
	})
}

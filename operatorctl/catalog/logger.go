// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func logger() component.Component {
	return service(30999, component.Component{
		Name: "logger", Summary: "audit log of operations",
		Workload:  component.Workload{DBInit: true},
		Config:    &component.Config{Groups: withClickHouse},
		Database:  &component.Database{Name: "yunionlogger"},
		Account:   &component.Account{User: "loggeradmin"},
		Endpoints: []component.Endpoint{{Service: "log", Type: "log"}},
	})
}

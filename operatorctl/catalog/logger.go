// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func logger() component.Component {
	return component.Component{
		Name: "logger", SpecKey: "logger", StatusKey: "logger", Summary: "audit log of operations",
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{DBInit: true, Ping: true},
		Config:    &component.Config{Groups: withClickHouse},
		Database:  &component.Database{Name: "yunionlogger"},
		Account:   &component.Account{User: "loggeradmin"},
		Service:   apiPort(30999),
		Endpoints: []component.Endpoint{{Service: "log", Type: "log"}},
	}
}

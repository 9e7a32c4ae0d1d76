// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudevent() component.Component {
	return component.Component{
		Name: "cloudevent", SpecKey: "cloudevent", StatusKey: "cloudevent", Summary: "operation logs of other clouds",
		Products:  notOnSite,
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{ContainerName: "server", Ping: true},
		Config:    &component.Config{Groups: withClickHouse, Options: syncTables},
		Database:  &component.Database{Name: "yunioncloudevent"},
		Account:   &component.Account{User: "cloudeventadmin"},
		Service:   apiPort(30892),
		Endpoints: []component.Endpoint{{Service: "cloudevent", Type: "cloudevent"}},
	}
}

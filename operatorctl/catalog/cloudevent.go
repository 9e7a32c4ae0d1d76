// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudevent() component.Component {
	return service(30892, component.Component{
		Name: "cloudevent", Summary: "operation logs of other clouds",
		Single:   "each copy would fetch every event",
		Products: notOnSite,
		Workload: component.Workload{ContainerName: "server"},
		Config:   &component.Config{Groups: withClickHouse, Options: syncTables},
		Database: &component.Database{Name: "yunioncloudevent"},
		Account:  &component.Account{User: "cloudeventadmin"},
	})
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func vpcagent() component.Component {
	return component.Component{
		Name: "vpcagent", SpecKey: "vpcAgent", StatusKey: "vpcAgent", Summary: "translates VPC networks into OVN",
		Products: withHosts, EarlierSection: "vpcagent",
		Gate:      localVPC,
		After:     []string{"keystone", "region", "ovn-north"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{Ping: true},
		Config:    &component.Config{Groups: noDatabase, Options: vpcagentOptions},
		Account:   &component.Account{User: "vpcagentadmin"},
		Service:   apiPort(30932),
		Endpoints: []component.Endpoint{{Service: "vpcagent", Type: "vpcagent"}},
	}
}

func vpcagentOptions(in component.Inputs) map[string]any {
	return map[string]any{"ovn_north_database": ovnAddress(in, "north-db")}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func vpcagent() component.Component {
	return service(30932, component.Component{
		Name: "vpcagent", SpecKey: "vpcAgent", Summary: "translates VPC networks into OVN",
		Single:   "each copy would write to the network's databases",
		Products: withHosts, EarlierSection: "vpcagent",
		Gate:    localVPC,
		After:   []string{"keystone", "region", "ovn-north"},
		Config:  &component.Config{Groups: noDatabase, Options: vpcagentOptions},
		Account: &component.Account{User: "vpcagentadmin"},
	})
}

func vpcagentOptions(in component.Inputs) map[string]any {
	return map[string]any{"ovn_north_database": ovnAddress(in, "north-db")}
}

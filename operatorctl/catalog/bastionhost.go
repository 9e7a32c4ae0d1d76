// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func bastionhost() component.Component {
	return service(30983, component.Component{
		Name: "bastionhost", SpecKey: "bastionHost", Summary: "bastion host with session recording",
		Single:   closedSource,
		Releases: component.Releases{First: "v3.10.5"},
		Editions: eeOnly,
		Products: withoutAI,
		Workload: component.Workload{DBInit: true, Listens: true},
		Database: &component.Database{Name: "bastionhost"},
		Account:  &component.Account{User: "bastionhost"},
	})
}

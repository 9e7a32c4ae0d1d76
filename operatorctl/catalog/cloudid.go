// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudid() component.Component {
	return service(30893, component.Component{
		Name: "cloudid", Summary: "users and permissions in other clouds",
		Single:   "each copy would synchronise every account",
		Releases: component.Releases{First: "v3.3.0"},
		Products: notOnSite,
		Workload: component.Workload{ContainerName: "server"},
		Database: &component.Database{Name: "yunioncloudid"},
		Account:  &component.Account{User: "cloudidadmin"},
	})
}

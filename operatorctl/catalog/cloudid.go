// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudid() component.Component {
	return component.Component{
		Name: "cloudid", SpecKey: "cloudid", StatusKey: "cloudid", Summary: "users and permissions in other clouds",
		Releases:  component.Releases{First: "v3.3.0"},
		Products:  notOnSite,
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{ContainerName: "server", Ping: true},
		Config:    &component.Config{Groups: apiGroups, Options: syncTables},
		Database:  &component.Database{Name: "yunioncloudid"},
		Account:   &component.Account{User: "cloudidadmin"},
		Service:   apiPort(30893),
		Endpoints: []component.Endpoint{{Service: "cloudid", Type: "cloudid"}},
	}
}

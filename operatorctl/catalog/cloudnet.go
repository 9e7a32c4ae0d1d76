// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudnet() component.Component {
	return component.Component{
		Name: "cloudnet", SpecKey: "cloudnet", StatusKey: "cloudnet", Summary: "networks between sites",
		Products: []component.Product{component.FullStack},
		Gate: func(s component.Spec) string {
			return unless(s.EnableCloudNet, "spec.enableCloudNet is not set")
		},
		After:     []string{"keystone"},
		Workload:  component.Workload{ContainerName: "server", Ping: true},
		Config:    &component.Config{Groups: apiGroups, Options: syncTables},
		Database:  &component.Database{Name: "yunioncloudnet"},
		Account:   &component.Account{User: "cloudnetadmin"},
		Service:   apiPort(30891),
		Endpoints: []component.Endpoint{{Service: "cloudnet", Type: "cloudnet"}},
	}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func cloudnet() component.Component {
	return service(30891, component.Component{
		Name: "cloudnet", Summary: "networks between sites",
		Single:   "each copy would configure the same routers",
		Products: []component.Product{component.FullStack},
		Gate:     func(s component.Spec) string { return unless(s.EnableCloudNet, "spec.enableCloudNet is not set") },
		Image:    component.Image{Name: "cloudnet"},
		Workload: component.Workload{ContainerName: "server"},
		Database: &component.Database{Name: "yunioncloudnet"},
		Account:  &component.Account{User: "cloudnetadmin"},
	})
}

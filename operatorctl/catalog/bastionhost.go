// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func bastionhost() component.Component {
	return component.Component{
		Name: "bastionhost", SpecKey: "bastionHost", StatusKey: "bastionHost", Summary: "bastion host with session recording",
		Releases:  component.Releases{First: "v3.10.5"},
		Editions:  eeOnly,
		Products:  withoutAI,
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{DBInit: true, Listens: true},
		Config:    &component.Config{Groups: apiGroups},
		Database:  &component.Database{Name: "bastionhost"},
		Account:   &component.Account{User: "bastionhost"},
		Service:   apiPort(30983),
		Endpoints: []component.Endpoint{{Service: "bastionhost", Type: "bastionhost"}},
	}
}

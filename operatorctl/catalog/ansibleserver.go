// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func ansibleserver() component.Component {
	return component.Component{
		Name: "ansibleserver", SpecKey: "ansibleserver", StatusKey: "ansibleserver", Summary: "runs Ansible playbooks",
		Products:  withAI,
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{ContainerName: "server", Ping: true, ReadReplicas: true, Security: usualRights()},
		Config:    &component.Config{Groups: apiGroups, Options: syncTables},
		Database:  &component.Database{Name: "yunionansible"},
		Account:   &component.Account{User: "ansibleadmin"},
		Service:   apiPort(30890),
		Endpoints: []component.Endpoint{{Service: "ansible", Type: "ansible"}},
	}
}

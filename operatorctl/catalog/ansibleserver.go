// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func ansibleserver() component.Component {
	return service(30890, component.Component{
		Name: "ansibleserver", Summary: "runs Ansible playbooks",
		Single:    "only the copy that started a playbook can track it",
		Products:  withAI,
		Workload:  component.Workload{ContainerName: "server", ReadReplicas: true, Security: usualRights()},
		Database:  &component.Database{Name: "yunionansible"},
		Account:   &component.Account{User: "ansibleadmin"},
		Endpoints: []component.Endpoint{{Service: "ansible", Type: "ansible"}},
	})
}

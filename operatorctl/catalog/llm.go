// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func llm() component.Component {
	return component.Component{
		Name: "llm", SpecKey: "llm", StatusKey: "llm", Summary: "language models on virtual machines",
		Releases:  component.Releases{First: "v4.0.2"},
		Products:  withAI,
		After:     []string{"keystone"},
		Image:     component.Image{Hyper: true},
		Workload:  component.Workload{Ping: true},
		Config:    &component.Config{Groups: apiGroups, Options: syncTables},
		Database:  &component.Database{Name: "llm"},
		Account:   &component.Account{User: "llmadmin"},
		Service:   apiPort(31512),
		Endpoints: []component.Endpoint{{Service: "llm", Type: "llm"}},
	}
}

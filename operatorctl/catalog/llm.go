// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func llm() component.Component {
	return service(31512, component.Component{
		Name: "llm", Summary: "language models on virtual machines",
		Single:   "it is not known whether two copies can serve at once",
		Releases: component.Releases{First: "v4.0.2"},
		Products: withAI,
		Database: &component.Database{Name: "llm"},
		Account:  &component.Account{User: "llmadmin"},
	})
}

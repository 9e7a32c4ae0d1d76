// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func devtool() component.Component {
	return service(30997, component.Component{
		Name: "devtool", Summary: "installs agents and tools on virtual machines",
		Single:   "each copy would run every scheduled script",
		Products: withAI,
		After:    []string{"keystone", "ansibleserver"},
		Database: &component.Database{Name: "devtool"},
		Account:  &component.Account{User: "devtooladmin"},
		Setup:    []string{"devtool-templates", "devtool-agent"},
	})
}

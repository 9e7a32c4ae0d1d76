// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// yunionconf ignores --exit-after-db-init and would never exit as an init container, so it creates its tables when it starts.
func yunionconf() component.Component {
	return service(30889, component.Component{
		Name: "yunionconf", Summary: "console and user settings",
		Database: &component.Database{Name: "yunionconf"},
		Account:  &component.Account{User: "yunionconf"},
		Register: []component.CatalogService{{Name: "yunionagent", Type: "yunionagent"}},
		Setup:    []string{"yunionconf-settings"},
	})
}

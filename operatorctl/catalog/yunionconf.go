// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// yunionconf ignores --exit-after-db-init and would never end as an init container: it makes its tables when it starts.
func yunionconf() component.Component {
	return component.Component{
		Name: "yunionconf", SpecKey: "yunionconf", StatusKey: "yunionconf", Summary: "console and user settings",
		After:    []string{"keystone"},
		Image:    component.Image{Hyper: true},
		Workload: component.Workload{Ping: true},
		Config: &component.Config{Groups: apiGroups, Options: func(component.Inputs) map[string]any {
			return map[string]any{"auto_sync_table": true}
		}},
		Database:  &component.Database{Name: "yunionconf"},
		Account:   &component.Account{User: "yunionconf"},
		Service:   apiPort(30889),
		Endpoints: []component.Endpoint{{Service: "yunionconf", Type: "yunionconf"}},
		Register:  []component.CatalogService{{Name: "yunionagent", Type: "yunionagent"}},
		Setup:     []string{"yunionconf-settings"},
	}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// baremetalAgent runs in the network of the machines that it installs, one per zone.
func baremetalAgent() component.Component {
	return component.Component{
		Name: "baremetal-agent", SpecKey: "baremetalagent", StatusKey: "baremetalagent", EarlierSection: "baremetal", Summary: "installs bare-metal machines",
		Single:   "one agent manages the machines of a zone",
		Products: []component.Product{component.FullStack, component.Edge},
		After:    []string{"keystone", "region"},
		Workload: component.Workload{
			NodeRole: "baremetal", Privileged: true, HostNetwork: true, PerZone: true,
			Mounts: []component.Mount{{Name: "opt", Path: "/opt/cloud/workspace", Storage: true}},
		},
		Config: &component.Config{Groups: noDatabase, StoredIn: "baremetal", Options: func(in component.Inputs) map[string]any {
			return map[string]any{
				"port": 8879, "baremetals_path": "/opt/cloud/workspace/baremetals", "zone": in.Cluster.Zone,
				"auto_register_baremetal": false, "linux_default_root_user": true,
			}
		}},
		Account:  &component.Account{User: "baremetal"},
		Register: []component.CatalogService{{Name: "baremetal", Type: "baremetal"}},
		Storage:  &component.Storage{Size: "100G"},
	}
}

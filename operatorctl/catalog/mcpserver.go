// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// mcpServer speaks plain HTTP, whatever enable_ssl says.
func mcpServer() component.Component {
	return service(30876, component.Component{
		Name: "mcp-server", SpecKey: "mcpServer", Summary: "MCP server: the cloud as tools for language models",
		Single:   "a client session exists only in the copy that started it",
		Releases: component.Releases{First: "v4.0.2"},
		Products: withAI,
		Image:    component.Image{EE: "mcp-server-ee", EEFor: eeOnly, Hyper: true},
		Workload: component.Workload{Listens: true},
		Config: &component.Config{Groups: []component.Group{component.GroupCommon}, Options: func(component.Inputs) map[string]any {
			return map[string]any{"enable_ssl": false, "ssl_ca_certs": "/etc/yunion/pki/ca.crt"}
		}},
		Account:   &component.Account{User: "mcp-server-admin"},
		Endpoints: []component.Endpoint{{Service: "mcp-server", Type: "mcp-server", Scheme: "http"}},
	})
}

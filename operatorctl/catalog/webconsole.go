// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func webconsole() component.Component {
	return service(30899, component.Component{
		Name: "webconsole", Summary: "remote consoles in the browser",
		Single: "a console session exists only in the copy that started it",
		Workload: component.Workload{
			ContainerName: "web", Security: usualRights(),
			Sidecars: []component.Sidecar{{
				Name: "guacd", SpecKey: "webconsole.Guacd", Image: component.Image{Tag: "1.6.0", Older: []component.OlderTag{{Until: "v3.11", Tag: "1.5.3"}}},
				When: func(s component.Spec) bool { return !component.Before(s.Version, "v3.11.0") },
			}},
		},
		Config:   &component.Config{Groups: withClickHouse, Options: webconsoleOptions},
		Database: &component.Database{Name: "webconsole"},
		Account:  &component.Account{User: "webconsole"},
	})
}

func webconsoleOptions(in component.Inputs) map[string]any {
	return map[string]any{
		"auto_sync_table": true, "enable_auto_login": true, "ipmitool_path": "/usr/sbin/ipmitool", "api_server": "https://" + in.Cluster.PublicHost("web"),
	}
}

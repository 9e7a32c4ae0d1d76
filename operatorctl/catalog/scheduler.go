// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// scheduler uses region's database with region's account. It has no tables of its own, and ignores --exit-after-db-init.
func scheduler() component.Component {
	return service(30887, component.Component{
		Name: "scheduler", Summary: "places virtual machines on hosts",
		Single:   "it keeps recent placements in memory until region has recorded them",
		After:    []string{"keystone", "region"},
		Workload: component.Workload{Memory: "128Mi"},
		Config: &component.Config{AccountOf: "region", StoredIn: "region2", Options: func(in component.Inputs) map[string]any {
			return map[string]any{"scheduler_port": in.Cluster.NodePort("scheduler", "")}
		}},
	})
}

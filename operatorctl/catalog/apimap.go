// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// apimap uses region's database, account and stored options. The earlier operator never ran it; disable: false does.
func apimap() component.Component {
	return service(31999, component.Component{
		Name: "apimap", SpecKey: "apiMap", Summary: "API routing map",
		Single:       "it is not known whether two copies can serve at once",
		Releases:     component.Releases{First: "v3.10.2"},
		Products:     []component.Product{component.FullStack, component.Edge},
		OffByDefault: true,
		After:        []string{"keystone", "region"},
		Config:       &component.Config{AccountOf: "region", StoredIn: "region2"},
	})
}

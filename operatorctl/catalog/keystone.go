// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func keystone() component.Component {
	return component.Component{
		Name: "keystone", SpecKey: "keystone", StatusKey: "keystone", Summary: "identity: users, projects, roles, the service catalogue",
		Image:    component.Image{Hyper: true},
		Workload: component.Workload{DBInit: true, Ping: true, ReadReplicas: true, PriorityClass: cloudCritical, CPU: "50m", Memory: "96Mi"},
		Config: &component.Config{
			Groups:  []component.Group{component.GroupTLS, component.GroupBase, component.GroupDB, component.GroupClickHouse},
			Options: keystoneOptions, Secrets: keystoneSecrets, Calm: true,
		},
		Database:    &component.Database{Name: "keystone"},
		Credentials: []string{component.BootstrapPassword}, ChosenCredentials: chosenBootstrapPassword,
		Service: &component.Service{Ports: []component.Port{
			{Name: "public", Port: 30500, SpecKey: "publicService.nodePort"},
			{Name: "admin", Port: 30357, SpecKey: "adminService.nodePort"},
		}},
		Endpoints: []component.Endpoint{
			{Service: "keystone", Type: "identity", Path: "/v3"},
			{Service: "keystone", Type: "identity", Path: "/v3", Port: "admin", Interfaces: []string{"admin"}},
			{Service: "offlinecloudmeta", Type: "offlinecloudmeta", URL: "https://yunionmeta.oss-cn-beijing.aliyuncs.com"},
		},
		Register: []component.CatalogService{{Name: "external-service", Type: "external-service"}, {Name: "common", Type: "common"}},
		Setup:    []string{"common-config", "console-login", "standard-policies"},
	}
}

func keystoneOptions(in component.Inputs) map[string]any {
	return map[string]any{
		"admin_port":                           in.Cluster.NodePort("keystone", "admin"),
		"reset_admin_user_password":            !in.AdminPasswordTaken, // at every start
		"auto_sync_table":                      false,
		"rbac_policy_refresh_interval_seconds": 1, // delay until a grant becomes visible; the default is 30 s
	}
}

func keystoneSecrets(in component.Inputs) map[string]any {
	return map[string]any{"bootstrap_admin_user_password": in.Credentials[component.BootstrapPassword]}
}

func chosenBootstrapPassword(s component.Spec) map[string]string {
	return map[string]string{component.BootstrapPassword: s.Keystone.BootstrapPassword}
}

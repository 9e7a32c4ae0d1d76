// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// serviceOperator creates resources of the cloud from Kubernetes objects. Installers of this cloud have always disabled it.
func serviceOperator() component.Component {
	return component.Component{
		Name: component.ServiceOperator, SpecKey: "onecloudServiceOperator", Summary: "manages cloud resources as Kubernetes objects",
		Single:   "each copy would change the same objects",
		Releases: component.Releases{First: "v3.3.0"},
		Products: withoutAI, OffByDefault: true,
		After: []string{"keystone"},
		Workload: component.Workload{
			ContainerName: "manager", Command: []string{"/manager", "--config", "/etc/yunion/oro.conf"}, NoCerts: true, ServiceAccount: "onecloud-service-operator",
			PodLabels: map[string]string{v1alpha1.LabelComponent: component.ServiceOperatorLabel, v1alpha1.LabelApp: component.ServiceOperatorLabel},
			Sidecars:  []component.Sidecar{{Name: "init", Init: true, Command: []string{"kubectl", "apply", "-f", "/etc/crds/"}}},
		},
		Config:  &component.Config{NotStored: true, File: "oro.conf", Options: serviceOperatorOptions, Secrets: serviceOperatorSecrets},
		Account: &component.Account{User: "osOperator"},
		Service: apiPort(30885),
	}
}

func serviceOperatorOptions(in component.Inputs) map[string]any {
	return map[string]any{
		"auth_url": in.Cluster.AuthURL(), "region": in.Cluster.Region, "admin_username": "osOperator", "admin_domain": "Default", "admin_project": "system",
		"ap_dense": true, "enable_webhooks": false, "sync_period": 15,
	}
}

func serviceOperatorSecrets(in component.Inputs) map[string]any {
	return map[string]any{"admin_password": in.Credentials[component.AccountPassword("onecloud-service-operator")]}
}

// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

// kubeserver also manages the cluster in which it runs, and installs the object store and the monitoring stack there.
func kubeserver() component.Component {
	return service(30442, component.Component{
		Name: "kubeserver", Summary: "manages Kubernetes clusters",
		Single:    "each copy would change the same clusters at once",
		Image:     component.Image{Name: "kubeserver"},
		Workload:  component.Workload{DBInit: true, Listens: true, EtcdTLS: true, ServiceAccount: clusterAdmin, Security: usualRights()},
		Config:    &component.Config{Groups: withClickHouse, Options: kubeserverOptions},
		Database:  &component.Database{Name: "kubeserver"},
		Account:   &component.Account{User: "kubeserver"},
		Endpoints: []component.Endpoint{{Service: "k8s", Type: "k8s", Path: "/api"}},
	})
}

func kubeserverOptions(in component.Inputs) map[string]any {
	return map[string]any{
		"auto_sync_table":      true,
		"https_port":           in.Cluster.NodePort("kubeserver", ""),
		"tls_cert_file":        "/etc/yunion/pki/service.crt",
		"tls_private_key_file": "/etc/yunion/pki/service.key",
	}
}

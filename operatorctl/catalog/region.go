// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

func region() component.Component {
	return service(30888, component.Component{
		Name: "region", SpecKey: "regionServer", StatusKey: "region", Summary: "compute: virtual machines, disks, networks, cloud accounts",
		After: []string{"keystone"}, EarlierSection: "region",
		Image: component.Image{EE: "region-ee", EEFor: eeOnly, Hyper: true},
		Workload: component.Workload{
			DBInit: true, ReadReplicas: true, EtcdTLS: true, Locks: true, ServiceAccount: regionRights, PriorityClass: cloudCritical, CPU: "50m", Memory: "200Mi",
			DNSOptions: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}},
			Security:   pings(), // a host that has left etcd counts as down, and its servers move, only if it does not answer a ping
		},
		Config:    &component.Config{Groups: withClickHouse, Options: regionOptions},
		Database:  &component.Database{Name: "yunioncloud"},
		Account:   &component.Account{User: "regionadmin"},
		Endpoints: []component.Endpoint{{Service: "region2", Type: "compute_v2"}},
		Setup:     []string{"region-topology"},
	})
}

func regionOptions(in component.Inputs) map[string]any {
	o := map[string]any{
		"auto_sync_table":               true,
		"port_v2":                       in.Cluster.NodePort("region", ""),
		"baremetal_prepare_package_url": "https://" + in.Cluster.PublicHost("web") + "/baremetal-prepare/baremetal_prepare.tar.gz",
	}
	if in.Self.Replicas > 1 && in.Cluster.Runs("etcd") {
		o["lockman_method"] = "etcd" // otherwise each copy locks alone, and all of them run the timers meant for one
	}
	if server := cmp.Or(in.Cluster.Spec.RegionServer.DNSServer, in.Cluster.LoadBalancer); server != "" {
		o["dns_server"] = server
	}
	if d := in.Cluster.Spec.RegionServer.DNSDomain; d != "" {
		o["dns_domain"] = d
	}
	return o
}

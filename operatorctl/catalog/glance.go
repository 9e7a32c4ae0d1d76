// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// glanceDir is where images lie on the node; host-deployer reads them there.
const glanceDir = "/opt/cloud/workspace/data/glance"

func glance() component.Component {
	return component.Component{
		Name: "glance", SpecKey: "glance", StatusKey: "glance", Summary: "images of servers",
		After: []string{"keystone"},
		Image: component.Image{Hyper: true},
		Workload: component.Workload{
			DBInit: true, Ping: true, ReadReplicas: true, Privileged: true,
			NodeRole:  "any", // its volume decides
			PodLabels: map[string]string{"onecloud.yunion.io/host-deployer": ""},
			Mounts: []component.Mount{
				{Name: "opt-cloud", Path: "/opt/cloud", HostPath: "/opt/cloud", HostPathType: corev1.HostPathDirectoryOrCreate, Bidirectional: true},
				{Name: "data", Path: "/data", Storage: true},
				{Name: "run", Path: "/var/run", HostPath: "/var/run", HostPathType: corev1.HostPathDirectory},
				{Name: "dev", Path: "/dev", HostPath: "/dev", HostPathType: corev1.HostPathDirectory},
			},
		},
		Config:    &component.Config{Groups: withClickHouse, Options: glanceOptions, Secrets: glanceSecrets},
		Database:  &component.Database{Name: "glance"},
		Account:   &component.Account{User: "glance"},
		Service:   apiPort(30292),
		Endpoints: []component.Endpoint{{Service: "glance", Type: "image", Path: "/v1"}},
		Storage:   &component.Storage{Size: "100G", HostDir: glanceDir},
	}
}

func glanceOptions(in component.Inputs) map[string]any {
	o := map[string]any{
		"auto_sync_table":          true,
		"filesystem_store_datadir": glanceDir + "/images",
		"enable_torrent_service":   false,
		"enable_remote_executor":   in.Cluster.Product != component.CMP,
	}
	if in.Cluster.Product == component.CMP {
		o["target_image_formats"] = []string{"qcow2", "vmdk"}
	}
	if in.Cluster.Spec.Glance.SwitchToS3 {
		o["storage_driver"] = "s3"
		maps.Copy(o, minioOptions(in))
	}
	return o
}

func glanceSecrets(in component.Inputs) map[string]any {
	if !in.Cluster.Spec.Glance.SwitchToS3 {
		return nil
	}
	return minioSecret(in)
}

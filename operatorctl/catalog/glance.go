// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/templates/nodefiles"
)

// glanceDir is the volume in which glance keeps images. Glance passes this path to the host-deployer of its node to inspect an image (doProbeImageInfo
// in pkg/image/models/images.go of Cloudpods), and every record in the database of an existing cloud contains it. So the volume is also mounted at the
// same path on the node. Agents of other nodes get images from glance over HTTP.
//
// The container itself mounts /opt/cloud without propagation: a mount below a shared one would stay on the node when the container ends. Glance's own
// mounts (s3fs) go to a separate directory.
const (
	glanceDir    = "/opt/cloud/workspace/data/glance"
	glanceMounts = "/opt/cloud/workspace/data/glance-mounts"
)

func glance() component.Component {
	return service(30292, component.Component{
		Name: "glance", Summary: "images of virtual machines",
		Single: ownVolume,
		Workload: component.Workload{
			DBInit: true, ReadReplicas: true, Privileged: true, Memory: "96Mi",
			NodeRole: "any", Recreate: true, // its volume determines the node, and has one writer
			PodLabels: map[string]string{"onecloud.yunion.io/host-deployer": ""},
			Mounts:    glanceVolumes(),
			Sidecars:  []component.Sidecar{volumeOnNode("data", "opt-cloud", "/opt/cloud", glanceDir)},
		},
		Config:    &component.Config{Groups: withClickHouse, Options: glanceOptions, Secrets: glanceSecrets},
		Database:  &component.Database{Name: "glance"},
		Account:   &component.Account{User: "glance"},
		Endpoints: []component.Endpoint{{Service: "glance", Type: "image", Path: "/v1"}},
		Storage:   &component.Storage{Size: "100G", HostDir: glanceDir},
	})
}

func glanceVolumes() []component.Mount {
	return []component.Mount{
		dir("opt-cloud", "/opt/cloud"),
		{Name: "data", Path: glanceDir, Storage: true},
		{Name: "mounts", Path: glanceMounts, HostPath: glanceMounts, HostPathType: corev1.HostPathDirectoryOrCreate, Bidirectional: true},
		{Name: "run", Path: "/var/run", HostPath: "/var/run", HostPathType: corev1.HostPathDirectory},
		{Name: "dev", Path: "/dev", HostPath: "/dev", HostPathType: corev1.HostPathDirectory},
	}
}

// volumeOnNode mounts a component's volume at dir of its node while the pod runs. host is the pod's volume with the node's root.
func volumeOnNode(volume, host, root, dir string) component.Sidecar {
	const inside = "/volume"
	test := fmt.Sprintf(`test "$(stat -c %%d:%%i %s)" = "$(stat -c %%d:%%i %s)"`, inside, dir)
	return component.Sidecar{
		Name: "volume-on-node", Init: true, Lasting: true, Privileged: true, Image: component.Image{Reference: "busybox"},
		Command: []string{"sh", "-c", nodefiles.VolumeOnNode, "volume-on-node", inside, dir}, Started: []string{"sh", "-c", test},
		Elsewhere: []component.Mount{{Name: volume, Path: inside}, {Name: host, Path: root, Bidirectional: true}},
	}
}

// glanceOptions lets glance convert images in its own container, whose image has qemu-img. The remote executor would use the node, which works only if
// that has both the executor and qemu-img; users who have that everywhere set the option in the ConfigMap. The paths are the same on the node. The
// option does not depend on the nodes' labels, because a node that joins would then restart glance in the middle of uploads.
func glanceOptions(in component.Inputs) map[string]any {
	o := map[string]any{
		"auto_sync_table":          true,
		"filesystem_store_datadir": glanceDir + "/images",
		"enable_torrent_service":   false,
		"enable_remote_executor":   false,
	}
	if in.Cluster.Product == component.CMP {
		o["target_image_formats"] = []string{"qcow2", "vmdk"}
	}
	if in.Cluster.Spec.Glance.SwitchToS3 {
		o["storage_driver"], o["s3_mount_point"] = "s3", glanceMounts+"/s3images"
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

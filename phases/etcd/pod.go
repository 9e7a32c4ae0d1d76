// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/nodepod"
)

const (
	// PhaseName is the name of Phase.
	PhaseName = "etcd-snapshots"

	// Pod is the static pod that saves snapshots, Container its container.
	Pod       = "ocadm-etcd"
	Container = "snapshots"

	// manifestFile is removed by package owned.
	manifestFile = nodepod.StaticDir + "/" + Pod + ".yaml"
	etcdPKI      = "/etc/kubernetes/pki/etcd"
)

// Phase makes a control-plane node save a snapshot of its etcd every hour.
func Phase(skip func(*host.Host) string, after ...string) host.Phase {
	return host.Writes(host.Phase{
		Name: PhaseName, Short: "Save a snapshot of etcd every hour", After: after, Skip: skip,
		Long: "Writes a static pod that saves a snapshot of etcd to " + Dir + " every hour, verifies it, and keeps the last twelve and one of each of\n" +
			"seven days. It does not need the API server.",
	}, func(h *host.Host) (host.FileSet, error) { return nodepod.Manifest(pod(h.Config.OperatorImage())) })
}

func pod(image string) *corev1.Pod {
	c := nodepod.Container(Container, image, "32Mi", "512Mi", "etcd", "keep")
	c.VolumeMounts = []corev1.VolumeMount{{Name: "pki", MountPath: etcdPKI, ReadOnly: true}, {Name: "snapshots", MountPath: Dir}}
	p := nodepod.Static(Pod, c)
	// Directories, because a single file would keep its old content in the container after it is replaced.
	p.Spec.Volumes = []corev1.Volume{nodepod.HostPath("pki", etcdPKI, corev1.HostPathDirectory), nodepod.HostPath("snapshots", Dir, corev1.HostPathDirectoryOrCreate)}
	return p
}

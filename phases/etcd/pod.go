// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// PhaseName is the name of Phase.
	PhaseName = "etcd-snapshots"

	podName = "ocadm-etcd"
	// manifestFile is removed by package owned.
	manifestFile = "/etc/kubernetes/manifests/" + podName + ".yaml"
	etcdPKI      = "/etc/kubernetes/pki/etcd"
)

// Phase lets a control-plane node save a snapshot of its etcd every hour.
func Phase(skip func(*host.Host) string, after ...string) host.Phase {
	return host.Phase{
		Name: PhaseName, Short: "Save a snapshot of etcd every hour", After: after, Skip: skip,
		Long: "Writes a static pod that saves a snapshot of etcd to " + Dir + " every hour, verifies it, and keeps the last twelve and one of each of\n" +
			"seven days. It needs no API server.",
		Run: func(_ context.Context, h *host.Host, r workflow.Reporter) error {
			files, err := manifest(h.Config)
			if err == nil {
				_, err = files.Write(h, r)
			}
			return err
		},
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		files, err := manifest(h.Config)
		return files.Todo(h), err
	})
}

func manifest(c *config.Config) (host.FileSet, error) {
	raw, err := yaml.Marshal(pod(c.OperatorImage()))
	if err != nil {
		return nil, fmt.Errorf("writing the pod of etcd's snapshots: %w", err)
	}
	return host.FileSet{{Name: manifestFile, Data: raw, Mode: 0o600}}, nil
}

func pod(image string) *corev1.Pod {
	var root int64
	no, yes := false, true
	dir := func(name, path string, kind corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
	}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"app": podName, "app.kubernetes.io/managed-by": "ocadm"}},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical", RestartPolicy: corev1.RestartPolicyAlways,
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			// Directories, because a certificate that is replaced would stay the old one in the container.
			Volumes: []corev1.Volume{dir("pki", etcdPKI, corev1.HostPathDirectory), dir("snapshots", Dir, corev1.HostPathDirectoryOrCreate)},
			Containers: []corev1.Container{{
				Name: "snapshots", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"etcd", "keep"},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: &root, RunAsGroup: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "pki", MountPath: etcdPKI, ReadOnly: true}, {Name: "snapshots", MountPath: Dir}},
			}},
		},
	}
}

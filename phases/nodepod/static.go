// SPDX-License-Identifier: Apache-2.0

package nodepod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/phases/host"
)

// StaticDir holds the manifests of static pods. Package owned removes ocadm's.
const StaticDir = "/etc/kubernetes/manifests"

// Static returns a static pod of ocadm's on a control-plane node, in the network of its machine.
func Static(name string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: named(name),
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: priority, RestartPolicy: corev1.RestartPolicyAlways, Containers: containers,
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		},
	}
}

// Container returns a container of a static pod. It runs as root, because only root can read the keys, and has no capabilities. memory is its request and
// limit its limit; "" means no limit.
func Container(name, image, memory, limit string, args ...string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse(memory),
		}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if limit != "" {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	}
	return c
}

// HostPath returns a volume for a file or directory of the machine.
func HostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// Manifest returns the file of a static pod.
func Manifest(p *corev1.Pod) (host.FileSet, error) {
	raw, err := yaml.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("writing static pod %s: %w", p.Name, err)
	}
	return host.FileSet{{Name: StaticDir + "/" + p.Name + ".yaml", Data: raw, Mode: 0o600}}, nil
}

// Argument returns the value of a flag in the manifest of a static pod, "" if no container has the flag.
func Argument(manifest, flag string) string {
	var p corev1.Pod
	if yaml.Unmarshal([]byte(manifest), &p) != nil {
		return ""
	}
	for _, c := range p.Spec.Containers {
		if at := slices.Index(c.Args, flag); at >= 0 && at+1 < len(c.Args) {
			return c.Args[at+1]
		}
	}
	return ""
}

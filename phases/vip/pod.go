// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	podName = "ocadm-vip"
	// ManifestFile is keepalived's static pod. Package owned removes it.
	ManifestFile = "/etc/kubernetes/manifests/" + podName + ".yaml"
	// addressFlag is the flag of the agent with the address of the node.
	addressFlag = "--address"
)

// Images are those that a node needs for the virtual address of a configuration, if it has one.
func Images(c *config.Config) ([]string, error) {
	if c.Cluster.VirtualAddress == "" {
		return nil, nil
	}
	image, err := Image(c)
	return []string{image}, err
}

// Image is that of keepalived.
func Image(c *config.Config) (string, error) {
	table, err := images.Load()
	if err != nil {
		return "", err
	}
	return table.Ref("keepalived", c.Cluster.ImageRepository)
}

func manifest(h *host.Host) (host.FileSet, error) {
	image, err := Image(h.Config)
	if err != nil {
		return nil, err
	}
	raw, err := yaml.Marshal(pod(h.Config, image))
	if err != nil {
		return nil, fmt.Errorf("writing keepalived's pod: %w", err)
	}
	return host.FileSet{{Name: ManifestFile, Data: raw, Mode: 0o600}}, nil
}

// selfIn is the address of the node in a manifest.
func selfIn(text string) string {
	var p corev1.Pod
	if yaml.Unmarshal([]byte(text), &p) != nil {
		return ""
	}
	for _, c := range p.Spec.Containers {
		if at := slices.Index(c.Args, addressFlag); at >= 0 && at+1 < len(c.Args) {
			return c.Args[at+1]
		}
	}
	return ""
}

// pod is the static pod: keepalived, and beside it the agent, which checks the API server and writes keepalived's configuration. They share
// processes, so that the agent can signal keepalived.
func pod(c *config.Config, image string) *corev1.Pod {
	shared := true
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"app": podName, "app.kubernetes.io/managed-by": "ocadm"}},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical", RestartPolicy: corev1.RestartPolicyAlways, ShareProcessNamespace: &shared,
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Volumes: []corev1.Volume{
				{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
				hostDir("settings", vip.Dir), hostDir("kubernetes", "/etc/kubernetes"),
			},
		},
	}
	run := corev1.VolumeMount{Name: "run", MountPath: vip.RunDir}
	settings := corev1.VolumeMount{Name: "settings", MountPath: vip.Dir}
	keepalived := container(kubernetes.Keepalived, image)
	keepalived.Command = []string{"keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file=" + vip.ConfigFile}
	keepalived.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN", "NET_RAW", "NET_BROADCAST"}
	readOnly := settings
	readOnly.ReadOnly = true
	keepalived.VolumeMounts = []corev1.VolumeMount{run, readOnly}
	agent := container("agent", c.OperatorImage())
	agent.Args = []string{"ha", "agent", addressFlag, c.Node.AdvertiseAddress, "--port", strconv.Itoa(c.Node.BindPort), "--node", c.Node.Name,
		"--kubeconfig", kube.AdminKubeconfig}
	// The directory, because a file that is replaced would stay the old one in the container.
	agent.VolumeMounts = []corev1.VolumeMount{run, settings, {Name: "kubernetes", MountPath: "/etc/kubernetes", ReadOnly: true}}
	p.Spec.Containers = []corev1.Container{keepalived, agent}
	return p
}

func hostDir(name, path string) corev1.Volume {
	kind := corev1.HostPathDirectory
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func container(name, image string) corev1.Container {
	var root int64
	no := false
	return corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("24Mi"),
		}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &root, RunAsGroup: &root, AllowPrivilegeEscalation: &no,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

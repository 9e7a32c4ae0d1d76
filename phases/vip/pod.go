// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/nodepod"
)

const (
	podName = "ocadm-vip"
	// ManifestFile is the manifest of keepalived's static pod. Package owned removes it.
	ManifestFile = nodepod.StaticDir + "/" + podName + ".yaml"
	// addressFlag is the agent's flag for the node's address.
	addressFlag = "--address"
	// memory is the memory request of each container.
	memory = "24Mi"
)

// Images returns the images that a node needs for the virtual address, if the configuration has one.
func Images(c *config.Config) ([]string, error) {
	if c.Cluster.VirtualAddress == "" {
		return nil, nil
	}
	image, err := Image(c)
	return []string{image}, err
}

// Image returns the image of keepalived.
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
	return nodepod.Manifest(pod(h.Config, image))
}

// pod returns the static pod: keepalived, and the agent, which checks the API server and writes keepalived's configuration. They share a process
// namespace, so that the agent can signal keepalived.
func pod(c *config.Config, image string) *corev1.Pod {
	run := corev1.VolumeMount{Name: "run", MountPath: vip.RunDir}
	settings := corev1.VolumeMount{Name: "settings", MountPath: vip.Dir}
	keepalived := nodepod.Container(kubernetes.Keepalived, image, memory, "")
	keepalived.Command = []string{"keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file=" + vip.ConfigFile}
	keepalived.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN", "NET_RAW", "NET_BROADCAST"}
	readOnly := settings
	readOnly.ReadOnly = true
	keepalived.VolumeMounts = []corev1.VolumeMount{run, readOnly}
	agent := nodepod.Container("agent", c.OperatorImage(), memory, "", "ha", "agent", addressFlag, c.Node.AdvertiseAddress, "--port", strconv.Itoa(c.Node.BindPort),
		"--node", c.Node.Name, "--kubeconfig", kube.AdminKubeconfig)
	// The directory is mounted, because a single file would keep its old content in the container after it is replaced.
	agent.VolumeMounts = []corev1.VolumeMount{run, settings, {Name: "kubernetes", MountPath: "/etc/kubernetes", ReadOnly: true}}
	keepalived.SecurityContext.ReadOnlyRootFilesystem, agent.SecurityContext.ReadOnlyRootFilesystem = nil, nil
	p := nodepod.Static(podName, keepalived, agent)
	p.Spec.ShareProcessNamespace = new(true)
	p.Spec.Volumes = []corev1.Volume{
		{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		nodepod.HostPath("settings", vip.Dir, corev1.HostPathDirectory), nodepod.HostPath("kubernetes", "/etc/kubernetes", corev1.HostPathDirectory),
	}
	return p
}

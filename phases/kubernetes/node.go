// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/images"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
)

// Role is the role of a node in Kubernetes.
type Role string

// The roles of a node.
const (
	ControlPlane Role = "control-plane"
	Worker       Role = "worker"
)

// JoinRole returns the role that join gives a machine.
func JoinRole(c *config.Config) Role {
	if c.Join.ControlPlane {
		return ControlPlane
	}
	return Worker
}

// NodeLabels returns the labels with which the kubelet registers its node: the cloud's roles, then the user's.
func NodeLabels(c *config.Config, role Role) []string {
	var labels []string
	add := func(on bool, name string) {
		if on {
			labels = append(labels, "onecloud.yunion.io/"+name+"=enable")
		}
	}
	add(role == ControlPlane || c.Node.AsController, "controller")
	add(c.Node.EnableHostAgent, "host")
	add(c.Node.Baremetal, "baremetal")
	return lists.Unique(append(labels, c.Node.Labels...))
}

func nodeRegistration(c *config.Config, role Role) kubeadmv1beta4.NodeRegistrationOptions {
	var args []kubeadmv1beta4.Arg
	if c.Node.Name != "" { // otherwise the kubelet takes the machine's name at each start, and the cluster refuses that of a renamed machine
		args = append(args, arguments("hostname-override", c.Node.Name)...)
	}
	if c.Node.IP != "" {
		args = append(args, arguments("node-ip", c.Node.IP)...)
	}
	if l := NodeLabels(c, role); len(l) > 0 {
		args = append(args, arguments("node-labels", strings.Join(l, ","))...)
	}
	return kubeadmv1beta4.NodeRegistrationOptions{
		Name:      c.Node.Name,
		CRISocket: cmp.Or(c.Node.CRISocket, config.DefaultCRISocket),
		// A controller node runs the cloud's pods, which tolerate no taints: an empty list keeps kubeadm from adding its own.
		Taints:           []corev1.Taint{},
		KubeletExtraArgs: args,
	}
}

// KubeletPatch returns this node's changes to the kubelet's configuration, as a merge patch for kubeadm; nil if there are none.
func KubeletPatch(c *config.Config) []byte {
	if !c.Node.CgroupV1 {
		return nil
	}
	return []byte("failCgroupV1: false\n")
}

// CoreDNSPatch makes CoreDNS ready as soon as it answers: kubeadm probes it only every ten seconds. The time after which it counts as not ready stays the same.
func CoreDNSPatch() ([]byte, error) {
	return yaml.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{
			"name":           "coredns",
			"readinessProbe": map[string]any{"periodSeconds": 1, "failureThreshold": 30},
		}},
	}}}})
}

// Images returns the images that kubeadm needs on a control-plane node, sorted.
func Images(c *config.Config) ([]string, error) {
	k, err := internalCluster(c)
	if err != nil {
		return nil, err
	}
	return lists.Distinct(images.GetControlPlaneImages(k)), nil
}

// WorkerImages returns kubeadm's images that a joining node may run, sorted.
func WorkerImages(c *config.Config) ([]string, error) {
	if c.Join.ControlPlane {
		return Images(c)
	}
	k, err := internalCluster(c)
	if err != nil {
		return nil, err
	}
	return lists.Distinct([]string{images.GetDNSImage(k), images.GetKubernetesImage(constants.KubeProxy, k), images.GetPauseImage(k)}), nil
}

func internalCluster(c *config.Config) (*kubeadmapi.ClusterConfiguration, error) {
	external, err := clusterConfiguration(c)
	if err != nil {
		return nil, err
	}
	kubeadmscheme.Scheme.Default(&external)
	var k kubeadmapi.ClusterConfiguration
	if err := kubeadmscheme.Scheme.Convert(&external, &k, nil); err != nil {
		return nil, fmt.Errorf("converting the cluster configuration for kubeadm: %w", err)
	}
	return &k, nil
}

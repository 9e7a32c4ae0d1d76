// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"slices"

	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/images"

	"yunion.io/x/ocadm/phases/config"
)

// Images are the images that kubeadm needs on a control-plane node, sorted.
func Images(c *config.Config) ([]string, error) {
	k, err := internalCluster(c)
	if err != nil {
		return nil, err
	}
	list := images.GetControlPlaneImages(k)
	slices.Sort(list)
	return slices.Compact(list), nil
}

// WorkerImages are the images of kubeadm's that a worker may run, sorted.
func WorkerImages(c *config.Config) ([]string, error) {
	k, err := internalCluster(c)
	if err != nil {
		return nil, err
	}
	list := []string{images.GetDNSImage(k), images.GetKubernetesImage(constants.KubeProxy, k), images.GetPauseImage(k)}
	slices.Sort(list)
	return list, nil
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

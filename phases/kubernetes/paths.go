// SPDX-License-Identifier: Apache-2.0

package kubernetes

import "yunion.io/x/ocadm/internal/kube"

// What this package and kubeadm write on a node.
const (
	// ConfigFile is the configuration that kubeadm is given. It may hold a bootstrap token: mode 0600.
	ConfigFile = "/etc/ocadm/kubeadm.yaml"
	// PatchesDir holds this node's patches for kubeadm.
	PatchesDir = "/etc/ocadm/patches"
	// AdminKubeconfig gives the rights of a cluster administrator; it exists on control-plane nodes only.
	AdminKubeconfig = kube.AdminKubeconfig
	// KubeletKubeconfig gives the rights of this node.
	KubeletKubeconfig = kubernetesDir + "/kubelet.conf"

	kubernetesDir     = "/etc/kubernetes"
	manifestsDir      = kubernetesDir + "/manifests"
	pkiDir            = kubernetesDir + "/pki"
	bootstrapConf     = kubernetesDir + "/bootstrap-kubelet.conf"
	kubeletDir        = "/var/lib/kubelet"
	kubeletConfigFile = kubeletDir + "/config.yaml"
	kubeletFlagsFile  = kubeletDir + "/kubeadm-flags.env"
	kubeletClientPEM  = kubeletDir + "/pki/kubelet-client-current.pem"
	etcdDir           = "/var/lib/etcd"
	podLogsDir        = "/var/log/pods"
	containerLogsDir  = "/var/log/containers"
)

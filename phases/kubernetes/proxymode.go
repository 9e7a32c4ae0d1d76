// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/kubernetes/pkg/util/kernel"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
)

// OldestNFTablesKernel is the oldest kernel that supports kube-proxy's nftables mode.
const OldestNFTablesKernel = kernel.NFTablesKubeProxyKernelVersion

// NFTablesKernel reports whether a kernel of this release ("uname -r") supports kube-proxy's nftables mode. A release in an unknown format is assumed to be new
// enough.
func NFTablesKernel(release string) bool {
	v, err := version.ParseGeneric(release)
	return err != nil || v.AtLeast(version.MustParseGeneric(OldestNFTablesKernel))
}

// AutoProxyMode returns the mode of kube-proxy if the user chose none: iptables on an old kernel, else that of an earlier init on this machine ("" for none), else
// nftables.
func AutoProxyMode(release, earlier string) string {
	switch {
	case !NFTablesKernel(release):
		return config.ProxyIPTables
	case earlier != "":
		return earlier
	}
	return config.ProxyNFTables
}

// clusterProxyMode returns the cluster's mode, using the token. kubeadm lets tokens read the ConfigMap of kube-proxy. If it does not exist, kube-proxy was left out,
// and clusterProxyMode returns "".
func clusterProxyMode(ctx context.Context, endpoint string, ca []byte, token string) string {
	a, err := ask(ctx, pinned(ca), endpoint, "/api/v1/namespaces/kube-system/configmaps/kube-proxy", token)
	var cm corev1.ConfigMap
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &cm) != nil {
		return ""
	}
	return proxyModeIn([]byte(cm.Data["config.conf"]))
}

// ProxyModeFits returns a finding if kube-proxy in the cluster's mode cannot run on this machine's kernel.
func ProxyModeFits(release, mode string) error {
	if !strings.EqualFold(mode, config.ProxyNFTables) || NFTablesKernel(release) {
		return nil
	}
	return finding.New("OCA-4112", fmt.Sprintf("The kernel %s of this machine is too old for the cluster's kube-proxy", release),
		fmt.Sprintf("kube-proxy of this cluster uses nftables, which needs kernel %s or later", OldestNFTablesKernel),
		"boot a kernel "+OldestNFTablesKernel+" or later on this machine; a cluster for older kernels is created with ocadm init --proxy-mode "+
			config.ProxyIPTables)
}

// VersionFits returns a finding if the kubelet is not compatible with the control plane.
func VersionFits(kubelet, controlPlane string) error {
	why := KubeletFits(kubelet, controlPlane)
	if why == "" {
		return nil
	}
	return finding.New("OCA-4109",
		fmt.Sprintf("This machine would get a kubelet %s, which is not compatible with the cluster's Kubernetes %s", kubelet, controlPlane),
		why, "join with the ocadm of the control plane, and with a bundle of that Kubernetes: --bundle FILE")
}

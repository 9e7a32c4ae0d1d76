// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scenario

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
)

// Software installs the node's software and imports its images on machine 1, without creating a cluster. Both sides of the comparison start from there.
func (sc *Scenario) Software(ctx context.Context) error {
	for _, phase := range []string{"node-files", "node-kernel", "node-units", "images"} {
		argv := append([]string{Ocadm, "init", "phase", phase, "--bundle", Bundle, "--ingress", "none",
			"--node-ip", sc.Lab.Node(1).Address.String()}, machineFlags...)
		if _, err := sc.On(ctx, 1, argv...); err != nil {
			return err
		}
	}
	return nil
}

// plainConfig is the shortest configuration with which kubeadm works on a lab machine; everything else is default.
const plainConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]s}
nodeRegistration: {kubeletExtraArgs: [{name: node-ip, value: %[1]s}]}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[2]s
networking: {podSubnet: 10.40.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0}
`

// PlainInit creates a cluster without ocadm's phases: kubeadm init, then the same manifests by kubectl, then waiting for a Ready node, storage and DNS.
func (sc *Scenario) PlainInit(ctx context.Context) error {
	node := sc.Lab.Node(1)
	manifests, err := manifests()
	if err != nil {
		return err
	}
	cfg := fmt.Sprintf(plainConfig, node.Address, version.Kubernetes)
	if err := node.Write(ctx, "/run/plain.yaml", 0o600, strings.NewReader(cfg)); err != nil {
		return err
	}
	if err := node.Write(ctx, "/run/manifests.yaml", 0o600, bytes.NewReader(manifests)); err != nil {
		return err
	}
	return sc.Timed("plain kubeadm init", func() error {
		if _, err := sc.On(ctx, 1, Ocadm, "kubeadm", "init", "--config", "/run/plain.yaml", "--ignore-preflight-errors=all"); err != nil {
			return err
		}
		for _, argv := range [][]string{
			{"apply", "-f", "/run/manifests.yaml"},
			{"wait", "--for=condition=Ready", "node", "--all", "--timeout=180s"},
			{"-n", "local-path-storage", "rollout", "status", "deployment/local-path-provisioner", "--timeout=180s"},
			{"-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s"},
		} {
			if _, err := sc.Kubectl(ctx, argv...); err != nil {
				return err
			}
		}
		return nil
	})
}

// manifests returns the manifests that ocadm applies for network and storage.
func manifests() ([]byte, error) {
	cfg := config.Default()
	var out bytes.Buffer
	for _, a := range addons.All() {
		if a.Name != "cni" && a.Name != "storage" {
			continue
		}
		objs, err := a.Objects(&cfg, addons.Prepared{})
		if err != nil {
			return nil, err
		}
		for _, o := range objs {
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				return nil, err
			}
			out.WriteString("---\n")
			out.Write(text)
		}
	}
	return out.Bytes(), nil
}

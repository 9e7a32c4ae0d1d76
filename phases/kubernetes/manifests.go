// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/phases/host"
)

func etcdPhase() host.Phase {
	return host.Phase{
		Name: "etcd", Short: "Write the static pod of etcd", After: []string{"certs"},
		Phases: []host.Phase{staticPod("local", "Write etcd's manifest", constants.Etcd, "init", "phase", "etcd", "local")},
	}
}

func controlPlanePhase() host.Phase {
	init := func(name string) []string { return []string{"init", "phase", "control-plane", name} }
	return host.Phase{
		Name: "control-plane", Short: "Write the static pods of the control plane", After: []string{"certs"},
		Phases: []host.Phase{
			staticPod("apiserver", "Write the API server's manifest", constants.KubeAPIServer, init("apiserver")...),
			after(staticPod("controller-manager", "Write the controller manager's manifest", constants.KubeControllerManager, init("controller-manager")...),
				"kubeconfig/controller-manager"),
			after(staticPod("scheduler", "Write the scheduler's manifest", constants.KubeScheduler, init("scheduler")...), "kubeconfig/scheduler"),
		},
	}
}

func staticPod(name, short, pod string, args ...string) host.Phase {
	return kubeadmPhase{
		name: name, short: short, args: args, writes: []string{manifest(pod)}, after: []string{},
		check: func(_ context.Context, h *host.Host) (bool, error) { return manifestWhole(h, pod) },
	}.phase()
}

func after(p host.Phase, names ...string) host.Phase {
	p.After = names
	return p
}

func manifest(pod string) string { return manifestsDir + "/" + pod + ".yaml" }

// manifestWhole reports whether the manifest of a static pod is there and names a container: the kubelet ignores one that is cut off.
func manifestWhole(h *host.Host, pod string) (bool, error) {
	raw, err := h.Files.ReadFile(manifest(pod))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading a static pod: %w", err)
	}
	var got corev1.Pod
	return yaml.Unmarshal(raw, &got) == nil && len(got.Spec.Containers) > 0, nil
}

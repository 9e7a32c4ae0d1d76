// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/images"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/phases/config"
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
		check: func(_ context.Context, h *host.Host) (bool, error) { return manifestDone(h, pod) },
	}.phase()
}

func after(p host.Phase, names ...string) host.Phase {
	p.After = names
	return p
}

func manifest(pod string) string { return manifestsDir + "/" + pod + ".yaml" }

// manifestDone tells whether the static pod is there with the image and the arguments that the configuration asks for.
func manifestDone(h *host.Host, pod string) (bool, error) {
	raw, err := h.Files.ReadFile(manifest(pod))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading a static pod: %w", err)
	}
	var got corev1.Pod
	if err := yaml.Unmarshal(raw, &got); err != nil || len(got.Spec.Containers) == 0 {
		return false, nil //nolint:nilerr // a torn file is written again
	}
	image, args, err := manifestWants(h.Config, pod)
	if err != nil {
		return false, err
	}
	container := got.Spec.Containers[0]
	if container.Image != image {
		return false, nil
	}
	return !slices.ContainsFunc(args, func(a string) bool { return !slices.Contains(container.Command, a) }), nil
}

func manifestWants(c *config.Config, pod string) (image string, args []string, err error) {
	cluster, err := clusterConfiguration(c)
	if err != nil {
		return "", nil, err
	}
	internal, err := internalCluster(c)
	if err != nil {
		return "", nil, err
	}
	var extra []kubeadmv1beta4.Arg
	switch pod {
	case constants.Etcd:
		return images.GetEtcdImage(internal, constants.SupportedEtcdVersion),
			[]string{"--name=" + c.Node.Name}, nil
	case constants.KubeAPIServer:
		extra = append(cluster.APIServer.ExtraArgs, arguments(
			"advertise-address", advertiseAddress(c), "service-cluster-ip-range", c.Cluster.ServiceCIDR)...)
	case constants.KubeControllerManager:
		extra = append(cluster.ControllerManager.ExtraArgs, arguments("cluster-cidr", c.Cluster.PodNetworkCIDR)...)
	case constants.KubeScheduler:
		extra = cluster.Scheduler.ExtraArgs
	}
	for _, a := range extra {
		args = append(args, "--"+a.Name+"="+a.Value)
	}
	return images.GetKubernetesImage(pod, internal), args, nil
}

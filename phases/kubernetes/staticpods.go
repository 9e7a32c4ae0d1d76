// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// stoppedDir holds the manifests of stopped static pods. Package owned removes it.
const stoppedDir = kubernetesDir + "/tmp/kubeadm-stopped-by-ocadm"

// StaticPods returns the static pods of a control-plane node, in the order in which they start.
func StaticPods() []string {
	return append([]string{constants.Etcd}, constants.ControlPlaneComponents...)
}

const (
	containerNameLabel = "io.kubernetes.container.name"
	podNameLabel       = "io.kubernetes.pod.name"
	// restartStop is how long a container may take to end.
	restartStop = 30 * time.Second
	// staticPodTimeout is more than the containers of all static pods need to end one after the other.
	staticPodTimeout = 4 * time.Minute
)

// StoppedPods returns the static pods whose manifests were moved away.
func StoppedPods(h *host.Host) []string {
	return slices.DeleteFunc(StaticPods(), func(name string) bool { return !h.Files.Exists(stopped(name)) || h.Files.Exists(manifest(name)) })
}

// installedPod returns this machine's static pod, even if it is stopped, or an empty one.
func installedPod(h *host.Host, name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if yaml.Unmarshal([]byte(cmp.Or(h.Files.Text(manifest(name)), h.Files.Text(stopped(name)))), pod) != nil {
		return &corev1.Pod{}
	}
	return pod
}

func stopped(name string) string { return path.Join(stoppedDir, name+".yaml") }

// StopStaticPods moves the manifests of static pods away, as kubeadm does, and waits until their containers have ended. It skips missing manifests. A kubelet that
// was started while its API server did not answer keeps such pods running and restarts them. So the kubelet is restarted, to make it forget them, and the containers
// are stopped through the runtime.
func StopStaticPods(ctx context.Context, h *host.Host, r workflow.Reporter, names ...string) error {
	if err := os.MkdirAll(h.Files.Path(stoppedDir), 0o700); err != nil {
		return fmt.Errorf("stopping static pods: %w", err)
	}
	moved := false
	for _, name := range names {
		err := os.Rename(h.Files.Path(manifest(name)), h.Files.Path(stopped(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stopping static pod %s: %w", name, err)
		}
		r.Changed("stopped %s", name)
		moved = true
	}
	running, err := staticContainers(ctx, h, names)
	if err != nil {
		return err
	}
	if moved || len(running) > 0 {
		if err := h.Start(ctx, r, "kubelet", true); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, staticPodTimeout)
	defer cancel()
	err = wait.Until(ctx, "the static pods to end", time.Second, func(ctx context.Context) (bool, string, error) {
		running, err := staticContainers(ctx, h, names)
		var left []string
		for name, c := range running {
			left = append(left, name)
			err = errors.Join(err, stopContainer(ctx, h, name, c))
		}
		slices.Sort(left)
		return len(left) == 0, strings.Join(left, ", "), err
	}, func(why string) { r.Waiting("static pods to stop", why) })
	return finding.Failed(ctx, err, "OCA-4145", "Static pods of the control plane do not end",
		"systemctl status kubelet; ctr -n k8s.io tasks list; then run the same command again")
}

// startStaticPod moves the manifest of a static pod back, unless a newer one is already in place.
func startStaticPod(h *host.Host, r workflow.Reporter, name string) error {
	if h.Files.Exists(manifest(name)) {
		if err := disk.Remove(h.Files.Path(stopped(name))); err != nil {
			return fmt.Errorf("starting static pod %s: %w", name, err)
		}
		removeEmpty(h)
		return nil
	}
	if err := os.Rename(h.Files.Path(stopped(name)), h.Files.Path(manifest(name))); err != nil {
		return fmt.Errorf("starting static pod %s: %w", name, err)
	}
	removeEmpty(h)
	r.Changed("started %s", name)
	return nil
}

// StartStaticPods moves the manifests of static pods back, in this order.
func StartStaticPods(h *host.Host, r workflow.Reporter, names ...string) error {
	for _, name := range names {
		if err := startStaticPod(h, r, name); err != nil {
			return err
		}
	}
	return nil
}

// removeEmpty removes the directory of stopped manifests, and kubeadm's directory above it, if they are empty.
func removeEmpty(h *host.Host) {
	for _, dir := range []string{stoppedDir, path.Dir(stoppedDir)} {
		if os.Remove(h.Files.Path(dir)) != nil {
			return // not empty, or already gone
		}
	}
}

// RestartStaticPod stops the container of a static pod, which the kubelet restarts immediately, and waits until the new one is healthy. The manifest stays in place,
// so an interruption leaves nothing to restore.
func RestartStaticPod(ctx context.Context, h *host.Host, r workflow.Reporter, name string) error {
	before, err := staticContainers(ctx, h, []string{name})
	if err != nil {
		return err
	}
	if old := before[name]; old != nil {
		if err := stopContainer(ctx, h, name, old); err != nil {
			return err
		}
	}
	if err := AwaitStaticPod(ctx, h, r, name, before[name]); err != nil {
		return err
	}
	r.Changed("restarted %s", name)
	return nil
}

func stopContainer(ctx context.Context, h *host.Host, name string, c *cri.Container) error {
	conn, err := h.CRI()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // no pending writes
	ctx, cancel := context.WithTimeout(ctx, restartStop+criTimeout)
	defer cancel()
	_, err = cri.NewRuntimeServiceClient(conn).StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.GetId(), Timeout: int64(restartStop.Seconds())})
	if err != nil {
		return fmt.Errorf("stopping the container of %s: %w", name, err)
	}
	return nil
}

// AwaitStaticPod waits until a static pod runs a container other than the given one, and it is healthy.
func AwaitStaticPod(ctx context.Context, h *host.Host, r workflow.Reporter, name string, not *cri.Container) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	return await(ctx, h, r, name, func(ctx context.Context, h *host.Host) string {
		now, err := staticContainers(ctx, h, []string{name})
		switch {
		case err != nil:
			return err.Error()
		case now[name] == nil || now[name].GetId() == not.GetId():
			return "the kubelet has not started it yet"
		}
		return probePod(name)(ctx, h)
	}, nil, diagnosePod(name))
}

// staticContainers returns the running containers of static pods, by name.
func staticContainers(ctx context.Context, h *host.Host, names []string) (map[string]*cri.Container, error) {
	list, err := systemContainers(ctx, h, &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING})
	if err != nil {
		return nil, err
	}
	out := map[string]*cri.Container{}
	for _, c := range list {
		if name := c.GetLabels()[containerNameLabel]; slices.Contains(names, name) {
			out[name] = c
		}
	}
	return out, nil
}

// stalePods returns the static pods that still run with an earlier manifest. While the API server is ready, it returns none: the kubelet replaces them by itself.
func stalePods(ctx context.Context, h *host.Host) ([]string, error) {
	if probeKubelet(ctx, h) != "" || probeAPIServer(ctx, h) == "" {
		return nil, nil
	}
	list, err := systemContainers(ctx, h, nil)
	return olderThanManifests(h, list), err
}

// olderThanManifests returns the static pods whose last container was created before their manifest was written.
func olderThanManifests(h *host.Host, list []*cri.Container) []string {
	last := map[string]*cri.Container{}
	for _, c := range list {
		if pod := c.GetLabels()[podNameLabel]; last[pod] == nil || created(c).After(created(last[pod])) {
			last[pod] = c
		}
	}
	return lists.Filter(StaticPods(), func(name string) bool {
		c, ran := last[name+"-"+h.Config.Node.Name]
		return ran && precedes(c, newest(h, manifest(name)))
	})
}

// RunningContainers returns the names of the running containers of kube-system on this machine.
func RunningContainers(ctx context.Context, h *host.Host) ([]string, error) {
	list, err := systemContainers(ctx, h, &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING})
	return lists.Map(list, func(c *cri.Container) string { return c.GetLabels()[containerNameLabel] }), err
}

// staleContainers returns the running containers of this node's static pod that started before the newest of the files was written.
func staleContainers(ctx context.Context, h *host.Host, pod string, files ...string) ([]*cri.Container, error) {
	list, err := systemContainers(ctx, h, &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING})
	at := newest(h, files...)
	return slices.DeleteFunc(list, func(c *cri.Container) bool {
		return c.GetLabels()[podNameLabel] != pod+"-"+h.Config.Node.Name || startedAfter(c, at)
	}), err
}

// systemContainers returns the containers of kube-system in a state; nil means any state.
func systemContainers(ctx context.Context, h *host.Host, state *cri.ContainerStateValue) ([]*cri.Container, error) {
	conn, err := h.CRI()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // no pending writes
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	list, err := cri.NewRuntimeServiceClient(conn).ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: state, LabelSelector: map[string]string{podNamespaceLabel: metav1.NamespaceSystem},
	}})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	return list.GetContainers(), nil
}

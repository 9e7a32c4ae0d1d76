// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	criTimeout  = 15 * time.Second // for one call; containers that do not end in time are killed
	criTries    = 3
	criParallel = 8
)

// podNamespaceLabel is set by the kubelet. Source: kubernetes staging/src/k8s.io/kubelet/pkg/types/labels.go.
const podNamespaceLabel = "io.kubernetes.pod.namespace"

// removePods removes all pods through CRI, where every pod belongs to the kubelet. Containers of other clients of the runtime, such as nerdctl and docker, are not
// pods. A missing runtime has no pods.
func removePods(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !hasRuntime(h) {
		return nil
	}
	conn, err := h.CRI()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // no pending writes
	runtime := cri.NewRuntimeServiceClient(conn)
	call, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	// A runtime that has just started creates its socket before it listens.
	list, err := runtime.ListPodSandbox(call, &cri.ListPodSandboxRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	if err := EndKeepalived(ctx, h); err != nil {
		r.Info("keepalived could not be stopped, and may leave the virtual address of the control plane on this machine (ip address): %v", err)
	}
	errs := lists.Parallel(list.GetItems(), criParallel, func(_ int, p *cri.PodSandbox) error {
		if err := removePod(ctx, runtime, p.GetId()); err != nil {
			return fmt.Errorf("removing pod %s/%s: %w", p.GetMetadata().GetNamespace(), p.GetMetadata().GetName(), err)
		}
		return nil
	})
	if n := lists.Count(errs, func(err error) bool { return err == nil }); n > 0 {
		r.Changed("removed %s", lists.Counted(n, "pod"))
	}
	return errors.Join(errs...)
}

// Keepalived is the name of package vip's container, which holds the control plane's virtual address.
const Keepalived = "keepalived"

// EndKeepalived makes keepalived remove the virtual address from this machine. Removing a pod kills its containers, and a killed keepalived leaves the address
// behind, on two machines once another node adopts it. The kubelet, which would stop it cleanly, may not be running.
func EndKeepalived(ctx context.Context, h *host.Host) error {
	if !hasRuntime(h) {
		return nil
	}
	running, err := staticContainers(ctx, h, []string{Keepalived})
	if c := running[Keepalived]; c != nil {
		return stopContainer(ctx, h, Keepalived, c)
	}
	return err
}

// hasRuntime reports whether the machine has a container runtime's socket: without one, nothing runs.
func hasRuntime(h *host.Host) bool {
	return h.Files.Exists(strings.TrimPrefix(h.CRISocket(), "unix://"))
}

func removePod(ctx context.Context, runtime cri.RuntimeServiceClient, id string) error {
	var errs []error
	for range criTries {
		call, cancel := context.WithTimeout(ctx, criTimeout)
		_, err := runtime.StopPodSandbox(call, &cri.StopPodSandboxRequest{PodSandboxId: id})
		if err == nil {
			_, err = runtime.RemovePodSandbox(call, &cri.RemovePodSandboxRequest{PodSandboxId: id})
		}
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// containerStates returns the states of the control plane's containers, for waiting users: " (etcd running, kube-apiserver exited)". It is empty if the container
// runtime does not answer.
func containerStates(ctx context.Context, h *host.Host) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	list, err := systemContainers(ctx, h, nil)
	if err != nil {
		return ""
	}
	newest := map[string]*cri.Container{}
	for _, c := range list {
		if name := c.GetMetadata().GetName(); newest[name] == nil || newest[name].GetCreatedAt() <= c.GetCreatedAt() {
			newest[name] = c
		}
	}
	states := lists.Map(slices.Sorted(maps.Keys(newest)), func(name string) string {
		return name + " " + strings.ToLower(strings.TrimPrefix(newest[name].GetState().String(), "CONTAINER_"))
	})
	if len(states) == 0 {
		return ""
	}
	return " (" + strings.Join(states, ", ") + ")"
}

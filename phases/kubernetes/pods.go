// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	criTimeout  = 15 * time.Second // of one call; containers that do not end in time are killed
	criTries    = 3
	criParallel = 8
)

// podNamespaceLabel is the kubelet's. Source: kubernetes staging/src/k8s.io/kubelet/pkg/types/labels.go.
const podNamespaceLabel = "io.kubernetes.pod.namespace"

// removePods removes the pods of the container runtime through CRI, whose pods are all the kubelet's. Containers that other clients of
// the runtime made, such as nerdctl and docker, are no pods. A runtime that is not there has none.
func removePods(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !hasRuntime(h) {
		return nil
	}
	conn, err := h.CRI()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was written that could be lost
	runtime := cri.NewRuntimeServiceClient(conn)
	call, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	// A runtime that has only just been started makes its socket before it listens.
	list, err := runtime.ListPodSandbox(call, &cri.ListPodSandboxRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	if err := EndKeepalived(ctx, h); err != nil {
		r.Info("keepalived could not be ended, and may leave the virtual address of the control plane on this machine (ip address): %v", err)
	}
	var n atomic.Int64
	var g errgroup.Group
	g.SetLimit(criParallel)
	for _, p := range list.GetItems() {
		g.Go(func() error {
			err := removePod(ctx, runtime, p.GetId())
			if err != nil {
				return fmt.Errorf("removing pod %s/%s: %w", p.GetMetadata().GetNamespace(), p.GetMetadata().GetName(), err)
			}
			n.Add(1)
			return nil
		})
	}
	err = g.Wait()
	if n.Load() > 0 {
		r.Changed("removed %d pods", n.Load())
	}
	return err
}

// Keepalived is the container of package vip that holds the virtual address of the control plane.
const Keepalived = "keepalived"

// EndKeepalived lets keepalived take the virtual address off this machine. The runtime kills the containers of a pod that is removed, and the address that a killed
// keepalived leaves is on two machines as soon as another node takes it over. The kubelet, which ends it otherwise, may not run.
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

// hasRuntime reports whether the machine has the socket of a container runtime: without one, nothing runs.
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

// containerStates are the states of the control plane's containers, for people who wait for them: " (etcd running, kube-apiserver exited)".
// It is empty while the container runtime does not answer.
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
	var states []string
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		states = append(states, name+" "+strings.ToLower(strings.TrimPrefix(newest[name].GetState().String(), "CONTAINER_")))
	}
	if len(states) == 0 {
		return ""
	}
	return " (" + strings.Join(states, ", ") + ")"
}

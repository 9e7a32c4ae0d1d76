// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

const (
	criTimeout  = 15 * time.Second // of one call; containers that do not end in time are killed
	criTries    = 3
	criParallel = 8
)

// removePods removes the pods of the container runtime through CRI, whose pods are all the kubelet's. Containers that other clients of
// the runtime made, such as nerdctl and docker, are no pods. A runtime that is not there has none.
func removePods(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	socket := strings.TrimPrefix(nodeRegistration(h.Config, Worker).CRISocket, "unix://")
	if !h.Files.Exists(socket) {
		return nil
	}
	conn, err := grpc.NewClient("unix://"+h.Files.Path(socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to the container runtime: %w", err)
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

// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/config"
)

// Kubeconfig returns the file that the clients of h use.
func (h *Host) Kubeconfig() string {
	if h.Config != nil && h.Config.Run.Kubeconfig != "" {
		return h.Config.Run.Kubeconfig
	}
	return h.Files.Path(kube.AdminKubeconfig)
}

// Reopen makes the clients read the kubeconfig again at their next use, after its CA or certificate has changed.
func (h *Host) Reopen() { h.REST, h.Kube = lazyREST(h), lazyKube(h) }

// Ask makes the clients use this configuration instead of the kubeconfig's, until Reopen.
func (h *Host) Ask(c *rest.Config) {
	h.REST = func(context.Context) (*rest.Config, error) { return c, nil }
	h.Kube = lazyKube(h)
}

// lazyREST reads the kubeconfig once it exists.
func lazyREST(h *Host) func(context.Context) (*rest.Config, error) {
	return lazy(func(context.Context) (*rest.Config, error) {
		c, err := clientcmd.BuildConfigFromFlags("", h.Kubeconfig())
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig %s: %w", h.Kubeconfig(), err)
		}
		c.UserAgent = cmp.Or(c.UserAgent, "ocadm")
		return c, nil
	})
}

// lazyKube creates the client once the API server answers.
func lazyKube(h *Host) func(context.Context) (client.WithWatch, error) {
	return lazy(func(ctx context.Context) (client.WithWatch, error) {
		cfg, err := h.REST(ctx)
		switch {
		case err != nil:
			return nil, err
		case h.Files.DryRun:
			return kube.NewDryRun(cfg)
		}
		return kube.New(cfg)
	})
}

// lazy caches the first successful result.
func lazy[T any](get func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var found *T
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if found != nil {
			return *found, nil
		}
		v, err := get(ctx)
		if err == nil {
			found = &v
		}
		return v, err
	}
}

// CRISocket returns the address of the node's container runtime.
func (h *Host) CRISocket() string { return cmp.Or(h.Config.Node.CRISocket, config.DefaultCRISocket) }

// CRI returns a connection to the node's container runtime. It connects on the first call, so CRI succeeds even if no runtime answers.
func (h *Host) CRI() (*grpc.ClientConn, error) {
	socket := h.Files.Path(strings.TrimPrefix(h.CRISocket(), "unix://"))
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connecting to the container runtime: %w", err)
	}
	return conn, nil
}

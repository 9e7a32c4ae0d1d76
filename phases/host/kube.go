// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// AdminKubeconfig is the kubeconfig that kubeadm makes on a control-plane node.
const AdminKubeconfig = "/etc/kubernetes/admin.conf"

// Kubeconfig is the file that the clients of h use.
func (h *Host) Kubeconfig() string {
	if h.Config != nil && h.Config.Run.Kubeconfig != "" {
		return h.Config.Run.Kubeconfig
	}
	return h.Files.Path(AdminKubeconfig)
}

// The limits of an installer's client: it is alone and short-lived.
const (
	clientQPS   = 200
	clientBurst = 400
)

// lazyREST reads the kubeconfig when it is first there.
func lazyREST(h *Host) func(context.Context) (*rest.Config, error) {
	var mu sync.Mutex
	var cached *rest.Config
	return func(context.Context) (*rest.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if cached != nil {
			return rest.CopyConfig(cached), nil
		}
		c, err := clientcmd.BuildConfigFromFlags("", h.Kubeconfig())
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig %s: %w", h.Kubeconfig(), err)
		}
		c.QPS, c.Burst = clientQPS, clientBurst
		c.UserAgent = cmp.Or(c.UserAgent, "ocadm")
		cached = c
		return rest.CopyConfig(c), nil
	}
}

// lazyKube makes the client when the API server first answers.
func lazyKube(h *Host) func(context.Context) (client.WithWatch, error) {
	var mu sync.Mutex
	var cached client.WithWatch
	return func(ctx context.Context) (client.WithWatch, error) {
		mu.Lock()
		defer mu.Unlock()
		if cached != nil {
			return cached, nil
		}
		cfg, err := h.REST(ctx)
		if err != nil {
			return nil, err
		}
		scheme, err := newScheme()
		if err != nil {
			return nil, err
		}
		c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, DryRun: new(h.Files.DryRun)})
		if err != nil {
			return nil, fmt.Errorf("making a client of the cluster: %w", err)
		}
		cached = c
		return c, nil
	}
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("making the scheme of the client: %w", err)
		}
	}
	return s, nil
}
